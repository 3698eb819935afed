package tracing

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
)

// Options of a [Tracer].
type Options struct {
	// Endpoint is where spans go: a URL, or host:port for plain gRPC (--otlp-traces-endpoint).
	Endpoint string
	// Getenv reads OTEL_* variables; the exporters themselves read those about headers, time-outs, compression and certificates
	// from the process.
	Getenv  func(string) string
	Version string // service.version
	Log     *slog.Logger
	// Grace is how long a request whose answer ended waits for records that have not come (0: 10 s).
	Grace time.Duration
	// Exporter replaces the OTLP exporter; nil: OTLP.
	Exporter trace.SpanExporter
}

// settings are the options with what the environment adds.
type settings struct {
	Options
	protocol  string
	sampler   trace.Sampler
	queue     int // requests that wait to be exported
	batch     int // spans an export
	delay     time.Duration
	timeLimit time.Duration // of one export
}

// Disabled reports whether OTEL_SDK_DISABLED turns tracing off.
func Disabled(getenv func(string) string) bool {
	return strings.EqualFold(strings.TrimSpace(getenv("OTEL_SDK_DISABLED")), "true")
}

// Check reports what is wrong with an endpoint and the environment, without opening anything.
func Check(endpoint string, getenv func(string) string) error {
	_, err := read(Options{Endpoint: endpoint, Getenv: getenv})
	return err
}

func read(o Options) (settings, error) {
	if o.Grace == 0 {
		o.Grace = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := settings{Options: o}
	var errs []error
	var err error
	if s.protocol, err = protocol(o.Getenv); err != nil {
		errs = append(errs, err)
	}
	if _, err = target(o.Endpoint); err != nil {
		errs = append(errs, err)
	}
	if s.sampler, err = sampler(o.Getenv); err != nil {
		errs = append(errs, err)
	}
	for _, v := range []struct {
		name string
		def  int
		set  func(int)
	}{
		{"OTEL_BSP_MAX_QUEUE_SIZE", 2048, func(n int) { s.queue = n }},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, func(n int) { s.batch = n }},
		{"OTEL_BSP_SCHEDULE_DELAY", 5000, func(n int) { s.delay = time.Duration(n) * time.Millisecond }},
		{"OTEL_BSP_EXPORT_TIMEOUT", 30000, func(n int) { s.timeLimit = time.Duration(n) * time.Millisecond }},
	} {
		n := v.def
		if text := o.Getenv(v.name); text != "" {
			if n, err = strconv.Atoi(text); err != nil || n < 1 {
				errs = append(errs, fmt.Errorf("%s must be a whole number above 0, got %q", v.name, text))
			}
		}
		v.set(n)
	}
	return s, errors.Join(errs...)
}

// protocol is vLLM's: grpc, or http/protobuf when OTEL_EXPORTER_OTLP_TRACES_PROTOCOL (or the general variable) says so.
func protocol(getenv func(string) string) (string, error) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch p := getenv(name); p {
		case "":
		case "grpc", "http/protobuf":
			return p, nil
		default:
			return "", fmt.Errorf("%s: unsupported OTLP protocol %q; grpc and http/protobuf are supported", name, p)
		}
	}
	return "grpc", nil
}

// target reads an endpoint; host:port means plain text, as with vLLM's gRPC exporter.
func target(endpoint string) (*url.URL, error) {
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("--otlp-traces-endpoint: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "grpc" || u.Host == "" {
		return nil, fmt.Errorf("--otlp-traces-endpoint must be host:port or a URL with http or https, got %q", endpoint)
	}
	if u.Scheme == "grpc" {
		u.Scheme = "http"
	}
	return u, nil
}

// sampler is OTEL_TRACES_SAMPLER; by default the caller's flag decides, and a request without a caller is sampled.
func sampler(getenv func(string) string) (trace.Sampler, error) {
	name := strings.TrimSpace(getenv("OTEL_TRACES_SAMPLER"))
	base, parent := strings.CutPrefix(name, "parentbased_")
	var s trace.Sampler
	switch base {
	case "":
		if parent {
			return nil, fmt.Errorf("OTEL_TRACES_SAMPLER: unknown sampler %q", name)
		}
		return trace.ParentBased(trace.AlwaysSample()), nil
	case "always_on":
		s = trace.AlwaysSample()
	case "always_off":
		s = trace.NeverSample()
	case "traceidratio":
		share := 1.0
		if arg := strings.TrimSpace(getenv("OTEL_TRACES_SAMPLER_ARG")); arg != "" {
			var err error
			if share, err = strconv.ParseFloat(arg, 64); err != nil || !(share >= 0 && share <= 1) {
				return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG must be between 0 and 1, got %q", arg)
			}
		}
		s = trace.TraceIDRatioBased(share)
	default:
		return nil, fmt.Errorf("OTEL_TRACES_SAMPLER: unknown sampler %q; always_on, always_off, traceidratio and parentbased_ before each are known", name)
	}
	if parent {
		s = trace.ParentBased(s)
	}
	return s, nil
}
