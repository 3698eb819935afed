// Package stagelog is the log view of the records: per request the [OmniTiming] line and vLLM-Omni's tables with the phase
// rows (PS-20), their data as a value (PS-21), and vLLM's periodic throughput line.
package stagelog
