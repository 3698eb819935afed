#!/usr/bin/env bash
# Everything that is too slow for CI. Prints a summary line a part; exits 1 when any failed.
set -uo pipefail
cd "$(dirname "$0")/.."
export OMNI_LONG=1
OMNI_MODEL_SMOLLM2=${OMNI_MODEL_SMOLLM2:-$(scripts/model.sh | tail -n 1)}
OMNI_MODEL_GEMMA3=${OMNI_MODEL_GEMMA3:-$(scripts/model.sh gemma3 | tail -n 1)}
export OMNI_MODEL_SMOLLM2 OMNI_MODEL_GEMMA3
status=0
part() {
	local name=$1 begin=$SECONDS
	shift
	if "$@"; then printf 'ok    %s (%ds)\n' "$name" $((SECONDS - begin)); else
		printf 'FAIL  %s (%ds)\n' "$name" $((SECONDS - begin))
		status=1
	fi
}
part "scheduler, long properties" go test -timeout 60m ./scheduler/...
part "models and kernels, real weights" go test -timeout 60m ./engine/... ./kernels/... ./internal/...
part "metrics, long" go test -timeout 60m ./metrics/... ./output/... ./stages/...
part "metrics, each rule broken on purpose" env -u OMNI_LONG make mutate-metrics
part "server over HTTP, long" go test -timeout 60m ./cmd/...
part "traces through a real OpenTelemetry collector" scripts/test-collector.sh
part "perplexity beside llama.cpp's, every vector level" go test -timeout 60m -run Perplexity ./bench/cpu
part "trace replay" go run ./bench/replaytrace scheduler/testdata/traces
exit $status
