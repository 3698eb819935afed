#!/usr/bin/env bash
# Our traces through a real OpenTelemetry collector: built once from its released modules into the cache, started by the test, which
# compares what it passes on with what the answers said, over gRPC and HTTP.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.165.0
cache=${OMNI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omni-engine}/otelcol-$version
if [ ! -x "$cache/out/otelcol" ]; then
	mkdir -p "$cache"
	cat >"$cache/builder.yaml" <<-CONFIG
		dist: {module: omni/otelcol, name: otelcol, output_path: ./out, version: $version}
		receivers:
		  - gomod: go.opentelemetry.io/collector/receiver/otlpreceiver v$version
		exporters:
		  - gomod: go.opentelemetry.io/collector/exporter/debugexporter v$version
		  - gomod: go.opentelemetry.io/collector/exporter/otlphttpexporter v$version
	CONFIG
	(cd "$cache" && go run "go.opentelemetry.io/collector/cmd/builder@v$version" --config builder.yaml)
fi
OMNI_OTELCOL=$cache/out/otelcol go test -count=1 -run TestRequestsAreTracedThroughARealCollector -v ./cmd/omni-engine
