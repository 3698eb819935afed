#!/usr/bin/env bash
# Real clients against the real binary with a real model: the openai package, 200 concurrent streams of our load generator, a
# Prometheus server that scrapes, promtool on the exposition, a client that goes away, SIGTERM. Needs Python with venv; the
# Prometheus part is skipped, and says so, where no prometheus is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/serving.sh
python_with clients openai 'openai==2.*' 'httpx'
serve server --log-stats
server=${pids[-1]}
port=$(cat "$work/server.port")
base=http://127.0.0.1:$port

echo "-- openai package"
"$venv/bin/python" test/clients/openai_client.py "$base"

echo "-- 200 concurrent streams"
bin/omni-engine bench serve --base-url "$base" --num-prompts 200 --random-input-len 24 --random-output-len 16 --ignore-eos \
	--temperature 0 --save-result --save-detailed --result-dir "$work" --result-filename load.json

echo "-- counts, metrics, clients that go away"
"$venv/bin/python" test/clients/metrics_client.py "$base" "$work/load.json"

if command -v promtool >/dev/null; then
	echo "-- promtool check metrics"
	curl -fsS "$base/metrics" | promtool check metrics >"$work/promtool" 2>&1 || true
	"$venv/bin/python" test/clients/promtool_findings.py "$work/promtool"
else
	echo "-- promtool is not installed: its check is skipped"
fi
if command -v promtool >/dev/null; then
	echo "-- alert rules"
	promtool check rules deploy/prometheus/rules.yml
	promtool check config deploy/prometheus/prometheus.yml
	promtool test rules deploy/prometheus/rules_test.yml
fi
if command -v prometheus >/dev/null; then
	echo "-- prometheus scrapes"
	cat >"$work/prometheus.yml" <<-CONFIG
		global: {scrape_interval: 1s}
		scrape_configs:
		  - job_name: omni
		    static_configs: [{targets: ["127.0.0.1:$port"]}]
	CONFIG
	prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" --web.listen-address=127.0.0.1:0 \
		>"$work/prometheus.log" 2>&1 &
	pids+=("$!")
	"$venv/bin/python" test/clients/prometheus_client.py "$work/prometheus.log"
	echo "-- Grafana dashboard"
	"$venv/bin/python" test/clients/dashboard_queries.py "$work/prometheus.log" "$base" bin/omni-engine
else
	echo "-- prometheus is not installed: the scrape is skipped"
fi

echo "-- SIGTERM drains and exits 0"
"$venv/bin/python" test/clients/sigterm_client.py "$base" "$server"
code=0
wait "$server" || code=$?
[ "$code" = 0 ] || { echo "the server exited with $code"; tail -n 20 "$work/server.log"; exit 1; }
grep -q 'OmniTiming' "$work/server.log" || { echo "no [OmniTiming] line with --log-stats"; exit 1; }
if grep -nE 'panic|DATA RACE|goroutine [0-9]+ \[' "$work/server.log"; then exit 1; fi
echo "clients: all passed"
