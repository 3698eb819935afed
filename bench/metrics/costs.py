#!/usr/bin/env python3
"""What recording and scraping cost, as a section of bench/RESULTS.md: reads the output of `go test -bench` and passes it on.

    go test ./metrics ./stages -run XXX -bench . -benchmem | bench/metrics/costs.py bench/RESULTS.md
"""
import os
import re
import sys

WHAT = {
    "StepOf32Requests": "a decode step of 32 requests: records and histograms",
    "FinishedRequest": "a request's end: all histograms",
    "RequestOf64Tokens": "a request of 64 tokens, from its first event to its end",
    "Scrape/pairs=1": "a scrape, 1 (stage, replica) pair",
    "Scrape/pairs=16": "a scrape, 16 pairs (limit 10 ms)",
    "Scrape/pairs=128": "a scrape, 128 pairs (limit 100 ms)",
    "OutputSideStep/recording=true/64": "the output side of a step of 64 requests, recording",
    "OutputSideStep/recording=false/64": "the output side of a step of 64 requests, recording off",
}
best, cpu = {}, ""
for line in sys.stdin:
    sys.stdout.write(line)
    if line.startswith("cpu:"):
        cpu = line[4:].strip()
    m = re.match(r"Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op\s+([\d.]+) B/op\s+(\d+) allocs/op", line)
    if m and m[1] in WHAT:
        ns, size, allocs = float(m[2]), float(m[3]), int(m[4])
        if m[1] not in best or ns < best[m[1]][0]:
            best[m[1]] = (ns, size, allocs)
if not best:
    sys.exit("no benchmark was read")


def time_text(ns):
    return f"{ns / 1e6:.2f} ms" if ns >= 1e6 else f"{ns / 1e3:.2f} µs" if ns >= 1e3 else f"{ns:.0f} ns"


rows = ["| what (`make bench-metrics`; the least of its runs) | time | allocations | bytes |", "|---|---|---|---|"]
rows += [f"| {what} | {time_text(best[k][0])} | {best[k][2]} | {best[k][1]:.0f} |" for k, what in WHAT.items() if k in best]
section = "<!-- bench/metrics-costs:begin -->\n" + "\n".join(rows) + f"\n\nProcessor: {cpu}; load average {os.getloadavg()[0]:.0f} while it ran.\n<!-- bench/metrics-costs:end -->"
path = sys.argv[1]
text = open(path).read()
if "<!-- bench/metrics-costs:begin -->" in text:
    text = re.sub(r"<!-- bench/metrics-costs:begin -->.*?<!-- bench/metrics-costs:end -->", lambda _: section, text, flags=re.S)
else:
    text = text.replace("<!-- bench/metrics:end -->", "<!-- bench/metrics:end -->\n\n" + section, 1)
open(path, "w").write(text)
