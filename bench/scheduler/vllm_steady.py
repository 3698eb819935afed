"""Runs vLLM's own scheduler under a steady decode load, for main.go to compare with.

Reads one command a line from standard input and answers with one line of JSON:
  load N     make a scheduler with N running requests (512-token prompts, a pool of N*80+16 blocks) that decode
  steps K    run K steps and return the processor seconds of each schedule() + update_from_output()
  trace F    run the arrivals of a recorded trace and return the seconds of its steps
"""
import gzip
import json
import os
import sys
import tempfile
import time

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch  # noqa: E402
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec  # noqa: E402
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_hidden_layers": 1, "num_key_value_heads": 4, "vocab_size": 1024, "max_position_embeddings": 32768, "torch_dtype": "float32",
}
init_none_hash(sha256)


def clock_cost():
    """What two readings in a row differ by, the least of many: an interval is that much too long."""
    least = 1.0
    for _ in range(1000):
        a = time.thread_time()
        b = time.thread_time()
        least = min(least, b - a)
    return least


COST = clock_cost()


def make(max_tokens, max_seqs, max_len, blocks, block_size, caching=True):
    d = tempfile.mkdtemp()
    with open(os.path.join(d, "config.json"), "w") as f:
        json.dump(MODEL, f)
    model = ModelConfig(model=d, tokenizer=d, skip_tokenizer_init=True, dtype="float32", seed=0, max_model_len=max_len)
    sched = SchedulerConfig(
        max_num_seqs=max_seqs, max_num_batched_tokens=max_tokens, max_model_len=max_len, enable_chunked_prefill=True,
        is_encoder_decoder=False)
    cache = CacheConfig(block_size=block_size, gpu_memory_utilization=0.9, enable_prefix_caching=caching)
    cfg = VllmConfig(model_config=model, scheduler_config=sched, cache_config=cache, device_config=DeviceConfig("cpu"))
    cache.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float32)
    kv = KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    return Scheduler(vllm_config=cfg, kv_cache_config=kv, structured_output_manager=StructuredOutputManager(cfg),
                     block_size=block_size, log_stats=True)


class Load:
    def __init__(self, n):
        self.s = make(8192, n, 2048, n * 80 + 16, 16)
        hasher = get_request_block_hasher(16, sha256)
        for i in range(n):
            p = SamplingParams(max_tokens=700, ignore_eos=True)
            self.s.add_request(Request(
                request_id=f"r{i}", prompt_token_ids=list(range(i * 512, (i + 1) * 512)), sampling_params=p, pooling_params=None,
                arrival_time=float(i), block_hasher=hasher))
        while True:
            _, total = self.step()
            if total == n and not self.s.waiting:
                break

    def step(self):
        t0 = time.thread_time()
        d = self.s.schedule()
        t1 = time.thread_time()
        ids = list(d.num_scheduled_tokens)
        out = ModelRunnerOutput(
            req_ids=ids, req_id_to_index={r: i for i, r in enumerate(ids)},
            sampled_token_ids=[[] if self.s.requests[r].is_prefill_chunk else [7] for r in ids])
        t2 = time.thread_time()
        self.s.update_from_output(d, out)
        return t1 - t0 + time.thread_time() - t2 - 2 * COST, d.total_num_scheduled_tokens


def trace(path):
    """Runs a synchronous trace's arrivals, aborts and sampled tokens; sessions and drafts are left out by the caller."""
    t = json.load(gzip.open(path))
    c = t["config"]
    s = make(c["max_num_batched_tokens"], c["max_num_seqs"], c["max_model_len"], c["num_gpu_blocks"], c["block_size"],
             c["enable_prefix_caching"])
    hasher = get_request_block_hasher(c["block_size"], sha256) if c["enable_prefix_caching"] else None
    seconds = []
    for st in t["steps"]:
        for a in st.get("pre", []):
            if a["op"] == "add":
                r = t["requests"][a["r"]]
                p = SamplingParams(max_tokens=r["max_tokens"], ignore_eos=True)
                s.add_request(Request(request_id=r["id"], prompt_token_ids=r["prompt_token_ids"], sampling_params=p, pooling_params=None,
                                      arrival_time=r["arrival_time"], block_hasher=hasher))
        if "sched" not in st:
            continue
        t0 = time.thread_time()
        d = s.schedule()
        t1 = time.thread_time()
        ids = list(d.num_scheduled_tokens)
        out = ModelRunnerOutput(req_ids=ids, req_id_to_index={r: i for i, r in enumerate(ids)},
                                sampled_token_ids=[[] if s.requests[r].is_prefill_chunk else [7] for r in ids])
        t2 = time.thread_time()
        s.update_from_output(d, out)
        seconds.append(t1 - t0 + time.thread_time() - t2 - 2 * COST)
    return seconds


def main():
    load = None
    for line in sys.stdin:
        cmd, _, arg = line.strip().partition(" ")
        if cmd == "load":
            load = Load(int(arg))
            answer = {}
        elif cmd == "steps":
            answer = {"seconds": [load.step()[0] for _ in range(int(arg))]}
        elif cmd == "trace":
            answer = {"seconds": trace(arg)}
        else:
            answer = {"error": f"unknown command {cmd}"}
        print(json.dumps(answer), flush=True)


main()
