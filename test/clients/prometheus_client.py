"""A real Prometheus server scraped us and answers queries that dashboards make."""
import json
import re
import sys
import time
import urllib.parse
import urllib.request


def address():
    for _ in range(200):
        text = open(sys.argv[1]).read()
        found = re.search(r'msg="Listening on" address=(\S+)', text)
        if found and not found.group(1).endswith(":0"):
            return found.group(1)
        time.sleep(0.1)
    raise SystemExit("prometheus did not start:\n" + text[-2000:])


at = address()


def query(q):
    with urllib.request.urlopen(f"http://{at}/api/v1/query?" + urllib.parse.urlencode({"query": q})) as r:
        return json.load(r)["data"]["result"]


for _ in range(100):
    if any(x["value"][1] == "1" for x in query("up")):
        break
    time.sleep(0.2)
else:
    raise SystemExit("the scrape never succeeded")
for q in ["sum(vllm:request_success_total)", 'histogram_quantile(0.9, sum by (le, stage) (vllm:e2e_request_latency_seconds_bucket))',
          "sum by (stage, replica) (vllm:request_queue_time_seconds_count)", "vllm:kv_cache_usage_perc", "vllm:cache_config_info"]:
    result = query(q)
    assert result, q
    print("ok", q, "=", result[0]["value"][1])
