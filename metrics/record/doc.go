// Package record is the leaf that the rooms share about measurement: the record of one request in one stage ([Stage]), the
// phase split and the waits that its methods derive, the exact ledger of where a request spent its life ([Ledger]), the
// core's published state ([Snapshot]) and the door through which finished records leave ([Sink]). It is the only place that
// subtracts times; the views in package metrics only read. The rules are those of the phase-split specification (PS-…).
package record
