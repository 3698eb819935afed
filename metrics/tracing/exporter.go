package tracing

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// newExporter opens the OTLP exporter. It connects when the first spans go out, so a collector that is not there yet is no error.
func newExporter(ctx context.Context, s *settings) (trace.SpanExporter, error) {
	if s.Exporter != nil {
		return s.Exporter, nil
	}
	u, err := target(s.Endpoint)
	if err != nil {
		return nil, err
	}
	if s.protocol == "grpc" {
		opts := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(u.Host)}
		if u.Scheme == "http" {
			opts = append(opts, otlptracegrpc.WithInsecure())
		}
		e, err := otlptracegrpc.New(ctx, opts...)
		if err != nil {
			return nil, fmt.Errorf("opening the OTLP exporter (gRPC) to %s: %w", s.Endpoint, err)
		}
		return e, nil
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	e, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, fmt.Errorf("opening the OTLP exporter (HTTP) to %s: %w", s.Endpoint, err)
	}
	return e, nil
}

// newResource says who sends: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES over our own.
func newResource(ctx context.Context, s *settings) (*resource.Resource, error) {
	r, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", scopeName), attribute.String("service.version", s.Version),
			attribute.Int("process.pid", os.Getpid())),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("reading OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return r, nil
}
