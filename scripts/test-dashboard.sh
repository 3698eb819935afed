#!/usr/bin/env bash
# The dashboard in headless Chromium against the real binary with a real model under load; `omni-engine top` beside it. Needs Chromium
# (Debian's package) and Python with venv. usage: test-dashboard.sh [FOLDER for the screenshots]
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${CHROMIUM:-}" ] && ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null; then
	echo "no chromium: install it, or name it in CHROMIUM" >&2
	exit 1
fi
work=$(mktemp -d)
shots=${1:-$work/shots}
pids=()
finish() {
	for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
	rm -rf "$work"
}
trap finish EXIT

model=${OMNI_MODEL_SMOLLM2:-$(scripts/model.sh | tail -n 1)}
cache=${OMNI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omni-engine}
venv=$cache/venv-browser
if ! "$venv/bin/python" -c 'import playwright' 2>/dev/null; then
	python3 -m venv "$venv"
	"$venv/bin/pip" install -q 'playwright==1.*'
fi

# start NAME FLAG...: serves the model, with a KV cache so small that the load preempts; the port is in $work/NAME.port.
start() {
	local name=$1
	shift
	"${OMNI_BIN:-bin/omni-engine}" serve "$model" --served-model-name smollm2 --host 127.0.0.1 --port 0 --port-file "$work/$name.port" \
		--num-gpu-blocks-override 90 --max-model-len 1024 "$@" >"$work/$name.log" 2>&1 &
	pids+=($!)
	for _ in $(seq 300); do
		[ -s "$work/$name.port" ] && return
		kill -0 "${pids[-1]}" 2>/dev/null || { cat "$work/$name.log"; exit 1; }
		sleep 0.1
	done
}
start recording
start off --no-log-stats
base=http://127.0.0.1:$(cat "$work/recording.port")

echo "-- the page"
"$venv/bin/python" test/browser/dashboard.py "$base" "http://127.0.0.1:$(cat "$work/off.port")" "$shots"

echo "-- top"
"${OMNI_BIN:-bin/omni-engine}" top --once --window 900 --url "$base" | tee "$work/top"
grep -q 'Where requests spend their time' "$work/top"
grep -q 'cmpl-' "$work/top"

if grep -q '/dashboard' "$work/recording.log"; then
	echo "looks are in the access log" >&2
	exit 1
fi
