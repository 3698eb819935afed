#!/usr/bin/env bash
# The dashboard in headless Chromium against the real binary with a real model under load; `omni-engine top` beside it. Needs Chromium
# (Debian's package) and Python with venv. usage: test-dashboard.sh [FOLDER for the screenshots]
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${CHROMIUM:-}" ] && ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null; then
	echo "no chromium: install it, or name it in CHROMIUM" >&2
	exit 1
fi
source scripts/serving.sh
shots=${1:-$work/shots}
python_with browser playwright 'playwright==1.*'

# The KV cache is so small that the load preempts.
start() { serve "$@" --num-gpu-blocks-override 90 --max-model-len 1024; }
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
