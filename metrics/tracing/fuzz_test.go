package tracing

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"omni-engine/metrics/record"
)

// What a client sends as traceparent never does harm, and wherever both read a context we read what OpenTelemetry's own propagator reads.
func FuzzTraceParent(f *testing.F) {
	for _, seed := range []string{caller, "", "00-", "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x", caller + "-", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"} {
		f.Add(seed, "vendor=1,other=2")
	}
	f.Fuzz(func(t *testing.T, parent, state string) {
		ours := record.TraceFrom([]string{parent}, []string{state})
		require.Equal(t, ours.TraceParent(), record.ParseTraceParent(ours.TraceParent()).TraceParent(), "what goes on is read as it was meant")
		ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": parent, "tracestate": state})
		theirs := trace.SpanContextFromContext(ctx)
		if !theirs.IsValid() || !ours.IsValid() {
			return
		}
		require.Equal(t, theirs.TraceID(), spanContext(ours).TraceID())
		require.Equal(t, theirs.SpanID(), spanContext(ours).SpanID())
		require.Equal(t, theirs.IsSampled(), ours.Sampled)
		require.Equal(t, theirs.TraceState().String(), spanContext(ours).TraceState().String())
	})
}
