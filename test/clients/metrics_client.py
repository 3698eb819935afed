"""After the load: every _count adds up, a client that goes away is an abort, gauges come back to zero."""
import json
import socket
import sys
import time
import urllib.parse
import urllib.request

base, result = sys.argv[1], json.load(open(sys.argv[2]))
assert result["completed"] == 200 and result["failed"] == 0, result["errors"][:3]
assert all(len(x) >= 1 for x in result["stage_metrics"]), "a request without stage_metrics"
assert all(x["0"]["vllm_queued_ms"] is not None and x["0"]["vllm_decode_ms"] is not None for x in result["stage_metrics"])
print("ok 200 streams with stage metrics")


def scrape():
    text = urllib.request.urlopen(base + "/metrics").read().decode()
    out = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            out[name] = float(value)
    return out


def total(m, prefix):
    return sum(v for k, v in m.items() if k.startswith(prefix))


def settled():
    for _ in range(100):
        m = scrape()
        if total(m, "vllm:num_requests_running") + total(m, "vllm:num_requests_waiting{") == 0:
            return m
        time.sleep(0.05)
    raise SystemExit("requests never settled")


def counts(m):
    done = total(m, "vllm:request_success_total")
    for family in ["e2e_request_latency_seconds", "request_prompt_tokens", "request_generation_tokens", "request_queue_time_seconds"]:
        assert total(m, f"vllm:{family}_count") == done or family == "request_queue_time_seconds", (family, done)
    assert total(m, "vllm:request_prompt_tokens_sum") == total(m, "vllm:prompt_tokens_total"), "prompt tokens"
    assert total(m, "vllm:request_generation_tokens_sum") == total(m, "vllm:generation_tokens_total"), "generated tokens"
    return done


before = settled()
done = counts(before)
print("ok the counts of", int(done), "finished requests add up")

# Eight clients that leave after the first bytes of a long answer.
url = urllib.parse.urlparse(base)
body = json.dumps({"model": "smollm2", "prompt": "Count:", "max_tokens": 1500, "ignore_eos": True, "stream": True}).encode()
for _ in range(8):
    s = socket.create_connection((url.hostname, url.port))
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    s.recv(200)
    s.close()
after = settled()
assert counts(after) == done + 8
aborted = sum(v for k, v in after.items() if k.startswith("vllm:request_success_total") and 'finished_reason="abort"' in k)
assert aborted >= 8, aborted
assert total(after, "vllm:kv_cache_usage_perc") == 0, "blocks are free again"
assert all('stage="0"' in k and 'replica="0"' in k for k in after if k.startswith("vllm:e2e_request_latency_seconds"))
print("ok clients that go away are aborts, their blocks are free")
