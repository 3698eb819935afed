"""The openai package as a client: completions, chat, streaming, logprobs, errors."""
import sys

import openai

base = sys.argv[1]
c = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0)


def check(what, ok):
    assert ok, what
    print("ok", what)


models = c.models.list().data
check("models", models[0].id == "smollm2" and models[0].owned_by == "vllm")

r = c.completions.create(model="smollm2", prompt="The capital of France is", max_tokens=8, temperature=0)
check("completion", "Paris" in r.choices[0].text and r.usage.completion_tokens == 8 and r.choices[0].finish_reason == "length")
greedy = r.choices[0].text

stream = c.completions.create(model="smollm2", prompt="The capital of France is", max_tokens=8, temperature=0, stream=True,
                              stream_options={"include_usage": True})
text, usage = "", None
for chunk in stream:
    text += "".join(x.text for x in chunk.choices)
    usage = chunk.usage or usage
check("streamed completion is the same text", text == greedy and usage.completion_tokens == 8)

ask = [{"role": "user", "content": "Name the capital of France."}]
r = c.chat.completions.create(model="smollm2", messages=ask, max_tokens=24, temperature=0)
check("chat", "Paris" in r.choices[0].message.content and r.choices[0].finish_reason == "stop")
answer = r.choices[0].message.content

parts = []
for chunk in c.chat.completions.create(model="smollm2", messages=ask, max_tokens=24, temperature=0, stream=True):
    parts += [x.delta.content or "" for x in chunk.choices]
check("streamed chat is the same text", "".join(parts) == answer and len(parts) > 3)

r = c.chat.completions.create(model="smollm2", messages=ask, max_tokens=4, temperature=0, logprobs=True, top_logprobs=3)
lp = r.choices[0].logprobs.content
check("chat logprobs", len(lp) == 4 and all(len(x.top_logprobs) == 3 and x.logprob <= 0 for x in lp)
      and lp[0].token == lp[0].top_logprobs[0].token and bytes(lp[0].bytes).decode() == lp[0].token)

r = c.completions.create(model="smollm2", prompt=["One, two,", "Red, green,"], max_tokens=4, temperature=0, logprobs=2, echo=True)
check("batch with echo and logprobs", len(r.choices) == 2 and r.choices[0].text.startswith("One, two,")
      and r.choices[0].logprobs.token_logprobs[0] is None)

r = c.completions.create(model="smollm2", prompt="Once upon a time", max_tokens=6, temperature=1, n=3, seed=7)
again = c.completions.create(model="smollm2", prompt="Once upon a time", max_tokens=6, temperature=1, n=3, seed=7)
check("n and seed", [x.text for x in r.choices] == [x.text for x in again.choices] and len({x.text for x in r.choices}) > 1)

r = c.completions.create(model="smollm2", prompt="The capital of France is", max_tokens=32, temperature=0, stop=["."])
check("stop string", r.choices[0].finish_reason == "stop" and "." not in r.choices[0].text)

r = c.chat.completions.create(model="smollm2", messages=ask, max_tokens=4, temperature=0, extra_body={"return_stage_metrics": True})
stage = r.model_extra["metrics"]["stage_metrics"]["0"]
check("stage metrics", stage["vllm_queued_ms"] >= 0 and stage["vllm_prefill_ms"] > 0 and stage["vllm_num_preemptions"] == 0)

for what, call, kind in [
    ("unknown model", lambda: c.completions.create(model="nope", prompt="x"), openai.NotFoundError),
    ("temperature out of range", lambda: c.completions.create(model="smollm2", prompt="x", temperature=9), openai.BadRequestError),
    ("prompt too long", lambda: c.completions.create(model="smollm2", prompt=[5] * 100000, max_tokens=1), openai.BadRequestError),
]:
    try:
        call()
        check(what, False)
    except kind as e:
        check(what, e.body["message"])
