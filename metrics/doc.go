// Package metrics is the room of the views: the Prometheus families of vLLM and vLLM-Omni with stage and replica in place
// of engine, fed through [record.Sink], read at scrape time from the cores' published snapshots. A scrape is encoded into
// memory first and touches no scheduler (PS-74); recording is lock-free for counters and never waits for a reader.
package metrics
