#!/usr/bin/env python3
"""Writes omni-engine.json, the Grafana dashboard, from the list of panels below.

    deploy/grafana/dashboard.py > deploy/grafana/omni-engine.json

test/clients/dashboard_queries.py compares the two and runs every query against a Prometheus server that scrapes a server under load.
"""
import json

ALL = 'model_name=~"$model", stage=~"$stage", replica=~"$replica"'
MODEL = 'model_name=~"$model"'
WINDOW = "[$__rate_interval]"
SPLIT = [("queue", "vllm:request_queue_time_seconds"), ("prefill", "vllm:request_prefill_time_seconds"), ("decode", "vllm:request_decode_time_seconds")]
WAITS = [("preempted", "vllm_omni:request_preempted_s"), ("waits for its input", "vllm_omni:request_input_wait_s"),
         ("waits for a chunk", "vllm_omni:request_chunk_wait_s"), ("waits for KV", "vllm_omni:request_kv_wait_s"),
         ("ready, not scheduled", "vllm_omni:request_unscheduled_wait_s")]


def rate(metric, by="", where=ALL):
    return f"sum by ({by}) (rate({metric}{{{where}}}{WINDOW}))" if by else f"sum(rate({metric}{{{where}}}{WINDOW}))"


def quantile(q, histogram, by="", where=ALL):
    by = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({by}) (rate({histogram}_bucket{{{where}}}{WINDOW})))"


def percentiles(histogram, where=ALL):
    return [(quantile(q, histogram, where=where), name) for q, name in [(0.5, "p50"), (0.9, "p90"), (0.99, "p99")]]


def mean(histogram, by="stage, replica"):
    return f"{rate(histogram + '_sum', by)} / {rate(histogram + '_count', by)}"


class Board:
    def __init__(self):
        self.panels, self.x, self.y, self.high = [], 0, 0, 0

    def row(self, title):
        if self.x:
            self.y += self.high
        self.panels.append({"type": "row", "title": title, "collapsed": False, "id": len(self.panels) + 1, "gridPos": {"x": 0, "y": self.y, "w": 24, "h": 1}, "panels": []})
        self.x, self.y, self.high = 0, self.y + 1, 0

    def add(self, kind, title, queries, unit="short", w=8, h=8, what="", **more):
        if self.x + w > 24:
            self.x, self.y, self.high = 0, self.y + self.high, 0
        targets = [{"refId": chr(65 + i), "expr": q, "legendFormat": legend, "datasource": SOURCE, **({"format": "heatmap"} if kind == "heatmap" else {})}
                   for i, (q, legend) in enumerate(queries)]
        custom = {"timeseries": {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": False,
                                 "stacking": {"mode": "normal" if more.get("stack") else "none", "group": "A"}}}.get(kind, {})
        options = {"timeseries": {"tooltip": {"mode": "multi", "sort": "desc"}, "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}},
                   "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"},
                   "heatmap": {"calculate": False, "yAxis": {"unit": unit}, "cellGap": 1, "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64}},
                   "table": {"showHeader": True}}[kind]
        self.panels.append({"type": kind, "title": title, "description": what, "id": len(self.panels) + 1, "datasource": SOURCE, "targets": targets,
                            "gridPos": {"x": self.x, "y": self.y, "w": w, "h": h}, "options": options,
                            "fieldConfig": {"defaults": {"unit": unit, "custom": custom, "min": more.get("low", 0), **({"max": more["top"]} if "top" in more else {}),
                                                         "thresholds": {"mode": "absolute", "steps": more.get("steps", [{"color": "green", "value": None}])}}, "overrides": []}})
        self.x, self.high = self.x + w, max(self.high, h)


SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def board():
    b = Board()
    b.row("Now")
    b.add("stat", "Generation", [(rate("vllm:generation_tokens_total"), "")], "short", 4, 4, "Output tokens a second.")
    b.add("stat", "Prefill", [(rate("vllm:prompt_tokens_total"), "")], "short", 4, 4, "Prompt tokens a second, those of the prefix cache included.")
    b.add("stat", "Running", [(f"sum(vllm:num_requests_running{{{ALL}}})", "")], "short", 4, 4)
    b.add("stat", "Waiting", [(f"sum(vllm:num_requests_waiting{{{ALL}}})", "")], "short", 4, 4, steps=[{"color": "green", "value": None}, {"color": "orange", "value": 1}])
    b.add("stat", "Fullest KV cache", [(f"max(vllm:kv_cache_usage_perc{{{ALL}}})", "")], "percentunit", 4, 4, top=1,
          steps=[{"color": "green", "value": None}, {"color": "orange", "value": 0.85}, {"color": "red", "value": 0.97}])
    b.add("stat", "Failures", [(f"sum(rate(vllm_omni:requests_failed_total{{{MODEL}}}{WINDOW}))", "")], "reqps", 4, 4, "Requests that ended in an error or because the client left.",
          steps=[{"color": "green", "value": None}, {"color": "red", "value": 0.01}])

    b.row("What users see")
    b.add("timeseries", "Time to first token", percentiles("vllm:time_to_first_token_seconds"), "s", what="Arrival to first token, on the front end's clock.")
    b.add("timeseries", "Between two tokens", percentiles("vllm:inter_token_latency_seconds"), "s")
    b.add("timeseries", "End to end", percentiles("vllm:e2e_request_latency_seconds"), "s")
    b.add("timeseries", "Requests by finish reason", [(rate("vllm:request_success_total", "finished_reason"), "{{finished_reason}}")], "reqps", stack=True)
    b.add("timeseries", "Tokens", [(rate("vllm:prompt_tokens_total"), "prompt"), (rate("vllm:generation_tokens_total"), "generated")], "short")
    b.add("timeseries", "HTTP answers", [('sum by (handler, status) (rate(http_requests_total{handler=~"/v1/.*"}' + WINDOW + "))", "{{handler}} {{status}}")], "reqps")

    b.row("Where requests spend their time: the phase split, on each stage's own core clock")
    b.add("timeseries", "Mean of each phase", [(f"{rate(m + '_sum', 'stage')} / {rate(m + '_count', 'stage')}", "stage {{stage}} " + n) for n, m in SPLIT], "s", 12,
          what="Phases of one stage are on one clock. Those of different stages overlap: they are not to be added up.")
    b.add("timeseries", "Share of the stage's time", [(f"sum by (stage) (rate({m}_sum{{{ALL}}}{WINDOW})) / on (stage) sum by (stage) (rate(vllm:request_queue_time_seconds_sum{{{ALL}}}{WINDOW}) + "
                                                      f"rate(vllm:request_inference_time_seconds_sum{{{ALL}}}{WINDOW}))", "stage {{stage}} " + n) for n, m in SPLIT], "percentunit", 12, top=1)
    for name, metric in SPLIT:
        b.add("timeseries", name.capitalize(), percentiles(metric), "s")
    b.add("timeseries", "Waits and preemption, mean", [(f"{rate(m + '_sum', 'stage')} / ({rate(m + '_count', 'stage')} > 0)", "stage {{stage}} " + n) for n, m in WAITS[:1]], "s", 12,
          what="A wait that no request had has no sample: absent is not zero.")
    b.add("timeseries", "Waits for other stages, requests a second", [(rate(m + "_count", "stage"), "stage {{stage}} " + n) for n, m in WAITS[1:]], "reqps", 12)
    b.add("heatmap", "Queue time", [(f"sum by (le) (increase(vllm:request_queue_time_seconds_bucket{{{ALL}}}{WINDOW}))", "{{le}}")], "s", 12)
    b.add("heatmap", "Decode time", [(f"sum by (le) (increase(vllm:request_decode_time_seconds_bucket{{{ALL}}}{WINDOW}))", "{{le}}")], "s", 12)

    b.row("Scheduler and KV cache")
    b.add("timeseries", "Requests in the engine", [(f"sum(vllm:num_requests_running{{{ALL}}})", "running"), (f"sum by (reason) (vllm:num_requests_waiting_by_reason{{{ALL}}})", "waiting: {{reason}}"),
                                                   (f"sum by (reason) (vllm_omni:stage_parked_requests{{{ALL}}})", "parked: {{reason}}")], "short", stack=True)
    b.add("timeseries", "KV cache usage", [(f"vllm:kv_cache_usage_perc{{{ALL}}}", "stage {{stage}} replica {{replica}}")], "percentunit", top=1)
    b.add("timeseries", "Preemptions", [(rate("vllm:num_preemptions_total", "stage, replica"), "stage {{stage}} replica {{replica}}")], "ops")
    b.add("timeseries", "Prefix-cache hits", [(f"{rate('vllm:prefix_cache_hits_total')} / ({rate('vllm:prefix_cache_queries_total')} > 0)", "share of prompt tokens")], "percentunit", top=1)
    b.add("timeseries", "Prompt tokens by source", [(rate("vllm:prompt_tokens_by_source_total", "source"), "{{source}}")], "short", stack=True)
    b.add("timeseries", "Tokens in a step", percentiles("vllm:iteration_tokens_total"), "short")
    b.add("timeseries", "Inbox of the core", percentiles("vllm_omni:core_inbox_wait_s"), "s", what="Submit to the core until its QUEUED event.")
    b.add("timeseries", "Admission refusals", [(f"sum by (reason) (rate(vllm:admission_rejections_total{{{MODEL}}}{WINDOW}))", "{{reason}}")], "reqps")
    b.add("timeseries", "Failures by reason", [(f"sum by (reason) (rate(vllm_omni:requests_failed_total{{{MODEL}}}{WINDOW}))", "{{reason}}")], "reqps")

    b.row("Requests")
    b.add("timeseries", "Prompt length", percentiles("vllm:request_prompt_tokens"), "short")
    b.add("timeseries", "Answer length", percentiles("vllm:request_generation_tokens"), "short")
    b.add("timeseries", "Preemptions a request", [(quantile(0.99, "vllm:request_num_preemptions"), "p99")], "short")

    b.row("Streams")
    b.add("timeseries", "First byte to the client", [(f"histogram_quantile({q}, sum by (le) (rate(omni_stream_first_byte_seconds_bucket{WINDOW})))", n) for q, n in [(0.5, "p50"), (0.99, "p99")]], "s", 12,
          what="Arrival until the first byte was handed to the connection, server's clock.")
    b.add("timeseries", "Time to send, by edge", [(f"histogram_quantile(0.99, sum by (le, from_stage, to_stage) (rate(omni_stream_send_seconds_bucket{WINDOW})))", "{{from_stage}} to {{to_stage}}, p99")], "s", 12)

    b.row("Process")
    b.add("timeseries", "Processors used", [('rate(process_cpu_seconds_total{instance=~"$instance"}' + WINDOW + ")", "{{instance}}")], "short")
    b.add("timeseries", "Resident memory", [('process_resident_memory_bytes{instance=~"$instance"}', "{{instance}}")], "bytes")
    b.add("timeseries", "Garbage collection", [('rate(go_gc_duration_seconds_sum{instance=~"$instance"}' + WINDOW + ")", "{{instance}}")], "percentunit")
    b.add("table", "Stages", [("vllm_omni:stage_info", "")], "short", 12, 6)
    b.add("table", "Builds", [("omni_engine_build_info", "")], "short", 12, 6)
    return b.panels


def variable(name, query, label):
    return {"name": name, "type": "query", "label": label, "datasource": SOURCE, "definition": query, "query": {"query": query, "refId": name}, "refresh": 2,
            "includeAll": True, "multi": True, "allValue": ".*", "current": {"selected": True, "text": ["All"], "value": ["$__all"]}, "sort": 1}


def dashboard():
    return {
        "title": "omni-engine", "uid": "omni-engine", "schemaVersion": 39, "version": 1, "editable": True, "timezone": "browser", "refresh": "10s",
        "description": "Where requests spend their time, by stage and replica.", "tags": ["omni-engine", "vllm"], "graphTooltip": 1,
        "time": {"from": "now-30m", "to": "now"}, "annotations": {"list": []}, "links": [],
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source", "current": {}},
            variable("instance", "label_values(process_start_time_seconds, instance)", "Instance"),
            variable("model", "label_values(vllm:num_requests_running, model_name)", "Model"),
            variable("stage", 'label_values(vllm:num_requests_running{model_name=~"$model"}, stage)', "Stage"),
            variable("replica", 'label_values(vllm:num_requests_running{model_name=~"$model", stage=~"$stage"}, replica)', "Replica")]},
        "panels": board(),
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=1))
