"""SIGTERM while an answer streams: the stream completes, new connections are refused."""
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request

base, pid = sys.argv[1], int(sys.argv[2])
body = json.dumps({"model": "smollm2", "prompt": "Count:", "max_tokens": 200, "ignore_eos": True, "stream": True}).encode()
r = urllib.request.urlopen(urllib.request.Request(base + "/v1/completions", body, {"Content-Type": "application/json"}))
first = r.readline()
os.kill(pid, signal.SIGTERM)
time.sleep(0.1)
try:
    urllib.request.urlopen(base + "/health", timeout=2)
    raise SystemExit("a new connection was accepted after SIGTERM")
except (urllib.error.URLError, ConnectionError):
    pass
rest = r.read()
assert rest.rstrip().endswith(b"data: [DONE]"), rest[-200:]
assert rest.count(b"data: ") >= 100
print("ok the running answer was completed")
