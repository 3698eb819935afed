"""Every query of our Grafana dashboard, and every family that our alerts read, against a real Prometheus that scrapes a real server under load.

    dashboard_queries.py PROMETHEUS-LOG SERVER-URL BINARY
"""
import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

root = pathlib.Path(__file__).resolve().parents[2]
at = re.search(r'msg="Listening on" address=(\S+)', open(sys.argv[1]).read()).group(1)
base, binary = sys.argv[2], sys.argv[3]
VARIABLES = {"$__rate_interval": "30s", "$model": ".*", "$stage": ".*", "$replica": ".*", "$instance": ".*"}
# Exported only where a collector is named (--otlp-traces-endpoint).
ABSENT = {"omni_traces_dropped_total"}


def query(q):
    try:
        with urllib.request.urlopen(f"http://{at}/api/v1/query?" + urllib.parse.urlencode({"query": q})) as r:
            return json.load(r)["data"]["result"]
    except urllib.error.HTTPError as e:
        raise SystemExit(f"{q}\n{e.read().decode()}")


def load():
    subprocess.run([binary, "bench", "serve", "--base-url", base, "--num-prompts", "48", "--max-concurrency", "12", "--random-input-len", "40",
                    "--random-prefix-len", "32", "--random-output-len", "24", "--ignore-eos"], check=True, stdout=subprocess.DEVNULL)


made = subprocess.run([sys.executable, root / "deploy/grafana/dashboard.py"], check=True, capture_output=True, text=True).stdout
written = (root / "deploy/grafana/omni-engine.json").read_text()
assert made == written, "deploy/grafana/omni-engine.json is not what dashboard.py makes: run it again"
board = json.loads(written)
ids = [p["id"] for p in board["panels"]]
assert len(ids) == len(set(ids))
for p in board["panels"]:
    g = p["gridPos"]
    assert g["x"] + g["w"] <= 24, p["title"]

load()
time.sleep(3)  # a rate needs two scrapes
load()
time.sleep(2)
queries = empty = 0
for panel in board["panels"]:
    for target in panel.get("targets", []):
        q = target["expr"]
        for name, value in VARIABLES.items():
            q = q.replace(name, value)
        assert "$" not in q, f"{panel['title']}: a variable is left in {q}"
        queries += 1
        result = query(q)
        if not result:
            # A share of requests that never waited has no data: these alone may be empty, and their families must exist.
            if "> 0" in q and all(query(f"count({m})") for m in re.findall(r"vllm(?:_omni)?:\w+", q)):
                empty += 1
                continue
            raise SystemExit(f"{panel['title']}: no data: {q}")
for variable in board["templating"]["list"][1:]:
    metric = re.search(r"label_values\(([\w:]+)", variable["definition"]).group(1)
    label = variable["definition"].rstrip(")").split(",")[-1].strip()
    assert any(label in r["metric"] for r in query(metric)), variable["definition"]
rules = (root / "deploy/prometheus/rules.yml").read_text()
read = {m for m in re.findall(r"\b(?:vllm(?:_omni)?:\w+|omni_\w+)", "\n".join(re.sub(r"#.*", "", line) for line in rules.splitlines()))}
for m in sorted(read - ABSENT):
    assert query(f"count({m})"), f"an alert reads {m}, which is not exported"
print(f"ok {queries} dashboard queries return data ({empty} of them empty because nothing waited), {len(read)} families of the rules exist")
