#!/usr/bin/env python3
"""What recording costs (PS-70): two servers of one binary and model, one with --log-stats, one with --no-log-stats, loaded in turns.

Each pair gives the ratio of their output throughputs (recording / none); the order within a pair alternates. Printed: the mean ratio with its
95 % interval, and whether the interval contains 0.99 or more.

    bench/metrics/pairs.py BINARY MODEL [PAIRS]
"""
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

binary, model = sys.argv[1], sys.argv[2]
pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 30
work = tempfile.mkdtemp()


def start(name, *flags):
    port = os.path.join(work, name + ".port")
    log = open(os.path.join(work, name + ".log"), "w")
    p = subprocess.Popen([binary, "serve", model, "--served-model-name", "m", "--host", "127.0.0.1", "--port", "0", "--port-file", port,
                          "--max-model-len", "2048", "--disable-uvicorn-access-log", *flags], stderr=log)
    for _ in range(600):
        if os.path.exists(port) and os.path.getsize(port):
            return p, open(port).read().strip()
        if p.poll() is not None:
            raise SystemExit(open(log.name).read())
        time.sleep(0.1)
    raise SystemExit(name + " did not start")


def load(port, n):
    out = os.path.join(work, "r.json")
    subprocess.run([binary, "bench", "serve", "--port", port, "--model", "m", "--num-prompts", "32", "--max-concurrency", "16", "--random-input-len", "16",
                    "--random-output-len", "32", "--ignore-eos", "--temperature", "0", "--seed", str(n), "--save-result", "--result-dir", work,
                    "--result-filename", "r.json"], check=True, stdout=subprocess.DEVNULL)
    r = json.load(open(out))
    if r["failed"]:
        raise SystemExit("requests failed")
    return r["output_throughput"]


servers = {}
processes = []
try:
    for name, flag in [("on", "--log-stats"), ("off", "--no-log-stats")]:
        p, servers[name] = start(name, flag)
        processes.append(p)
    for port in servers.values():
        load(port, 0)
    logs, on_rates = [], []
    for i in range(pairs):
        order = ["on", "off"] if i % 2 == 0 else ["off", "on"]
        rate = {name: load(servers[name], i + 1) for name in order}
        logs.append(math.log(rate["on"] / rate["off"]))
        on_rates.append(rate["on"])
    mean, err = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(pairs)
    t = 2.045 if pairs <= 30 else 1.98  # Student's t, 97.5 %
    low, high = math.exp(mean - t * err), math.exp(mean + t * err)
    print(f"{pairs} pairs, 32 requests each, 16 at once, 16 in / 32 out; median {statistics.median(on_rates):.0f} tokens/s with recording")
    print(f"ratio recording/none {math.exp(mean):.4f}, 95 % interval [{low:.4f}, {high:.4f}], load average {os.getloadavg()[0]:.1f}")
    print("ratio recording", f"{math.exp(mean):.4f}")
    sys.exit(0 if high >= 0.99 else 1)
finally:
    for p in processes:
        p.send_signal(signal.SIGTERM)
    for p in processes:
        p.wait()
