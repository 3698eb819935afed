// Package tracing turns finished records into OpenTelemetry spans and exports them over OTLP. A request's spans are made once, when
// its front and every record of its stages are there: a span `llm_request` with vLLM's attributes, under it one a stage, under
// that one a phase. Nothing here subtracts times: intervals are the record's, and a core's readings are only mapped to wall time.
// It never holds up an engine: what does not fit into the queue is dropped and counted.
package tracing
