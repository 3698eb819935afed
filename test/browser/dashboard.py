"""The dashboard in headless Chromium against a real server under load.

usage: dashboard.py BASE BASE_WITHOUT_RECORDING SCREENSHOT_FOLDER

Checks bars, percentiles, list, search, waterfall and the states of trouble, in dark and light, on a desktop and a phone; that nothing is
asked of anybody but the server, that the console stays silent, and that a hostile request id stays text. Figures are compared with
/metrics and with what the response of a request said."""
import contextlib
import json
import os
import re
import shutil
import sys
import threading
import time
import urllib.request

from playwright.sync_api import expect, sync_playwright

from load import HOSTILE, TRACE, Load

DESKTOP = {"viewport": {"width": 1360, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}


def get(base, path):
    with urllib.request.urlopen(base + path, timeout=20) as r:
        body = r.read()
    return json.loads(body) if "json" in r.headers["Content-Type"] else body.decode()


class Watch:
    """What a page must not do: ask others, write to the console, throw."""

    def __init__(self, page, base):
        self.base, self.wrong, self.expected = base, [], False
        page.on("request", lambda r: self.note(not r.url.startswith(base + "/"), f"asked outside: {r.url}"))
        page.on("console", lambda m: self.note(m.type in ("error", "warning"), f"console: {m.text}"))
        page.on("pageerror", lambda e: self.note(True, f"threw: {e}"))
        page.on("requestfailed", lambda r: self.note(True, f"failed: {r.url} {r.failure}"))

    def note(self, bad, what):
        if bad and not self.expected:
            self.wrong.append(what)


@contextlib.contextmanager
def opened(browser, base, scheme, device, **more):
    context = browser.new_context(color_scheme=scheme, **device, **more)
    page = context.new_page()
    watch = Watch(page, base)
    page.goto(base + "/dashboard")
    expect(page.locator("#link")).to_have_text("Live", timeout=15000)
    yield page, watch
    watch.expected = True
    context.close()
    assert not watch.wrong, watch.wrong


def shot(page, folder, name, **how):
    page.screenshot(path=os.path.join(folder, name + ".png"), **how)


def no_overflow(page):
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the screen"


def check_empty(browser, base, folder):
    with opened(browser, base, "dark", DESKTOP) as (page, _):
        expect(page.locator("#rows-empty pre")).to_contain_text("curl " + base + "/v1/completions")
        expect(page.locator(".time-panel .empty")).to_contain_text("No request ended")
        assert page.locator('tr[data-measure="queued"] td').first.inner_text() == "–", "nothing observed is a dash"
        shot(page, folder, "empty")


def check_recording_off(browser, base, folder):
    with opened(browser, base, "light", DESKTOP) as (page, _):
        expect(page.locator("#banner")).to_contain_text("Recording is off")
        expect(page.locator(".card").first).to_contain_text("since start")
        expect(page.locator("#rows-empty")).to_have_text("Recording is off, so no request is kept.")
        shot(page, folder, "recording-off")


def check_bars(page):
    expect(page.locator(".legend [data-state=decode]")).to_be_visible(timeout=15000)
    shares = page.eval_on_selector_all(".bar-slot .stack span", "all => all.map(e => parseFloat(e.style.width))")
    assert len(shares) >= 2 and abs(sum(shares) - 100) < 0.01, shares
    assert len(shares) == page.locator(".legend [data-state]").count()
    assert max([0.0] + [float(p) for p in re.findall(r"([0-9.]+) %", page.locator(".replica").inner_text())]) <= 100, "a share above the whole"
    filled = page.eval_on_selector_all(".bar-slot .stack span", "all => all.every(e => getComputedStyle(e).backgroundColor !== 'rgba(0, 0, 0, 0)')")
    assert filled, "a state has no colour"


def find(page, text):
    page.locator("#search").fill(text)
    page.wait_for_timeout(600)
    return page.locator("#rows button")


def check_look(browser, base, scheme, device, name, folder, rows):
    """One look under load."""
    with opened(browser, base, scheme, device) as (page, _):
        page.wait_for_timeout(2500)
        check_bars(page)
        no_overflow(page)
        assert page.locator(".spark .line").count() >= 4, "throughput has a history"
        assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
        dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/)[0] < 128")
        assert dark == (scheme == "dark"), "the page does not follow the colour scheme"
        assert page.locator("#rows li").count() >= rows
        shot(page, folder, name)
        one = find(page, page.locator("#rows .id").first.text_content()).first  # a list of one stands still
        one.click()
        dialog = page.locator("#detail")
        expect(dialog.locator(".lane").first).to_be_visible()
        assert dialog.evaluate("e => e.scrollWidth <= e.clientWidth"), "the drawer is wider than the screen"
        page.wait_for_timeout(300)
        shot(page, folder, name + "-waterfall")
        page.locator("#close").click()
        expect(dialog).not_to_be_visible()


def check_list_stands_still(page):
    page.locator("#rows button").first.hover()
    page.wait_for_timeout(1200)
    keys = "all => all.map(e => e.dataset.key)"
    before = page.eval_on_selector_all("#rows button", keys)
    page.wait_for_timeout(3000)
    assert page.eval_on_selector_all("#rows button", keys) == before, "the list moved under the pointer"
    expect(page.locator("#requests-note")).to_have_text("Held while you look")
    page.mouse.move(5, 5)
    page.wait_for_function("before => document.querySelector('#rows button').dataset.key !== before", arg=before[0], timeout=20000)


def check_search_and_waterfall(page, base, load):
    answer = load.send({"prompt": "What is the tide at the quay?", "max_tokens": 12, "return_stage_metrics": True, "ignore_eos": True},
                       {"X-Request-Id": "harbour-1", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"})
    told = answer["metrics"]["stage_metrics"]["0"]
    for text in ("harbour-1", "HARBOUR-1", TRACE):
        expect(find(page, text)).to_have_count(1)
    row = page.locator("#rows button")
    row.press("Enter")  # by keyboard
    dialog = page.locator("#detail")
    expect(dialog).to_be_visible()
    expect(dialog.locator("#detail-title")).to_have_text("cmpl-harbour-1")
    expect(dialog).to_contain_text("own engine core’s clock")
    expect(dialog).to_contain_text(TRACE)
    split = dict(dialog.locator(".split tr").evaluate_all("all => all.map(r => [r.cells[0].textContent, r.cells[2].textContent])"))
    assert split, "the drawer has the phase split"
    for name, value in split.items():
        want = told[name]
        if want is None:
            assert value == "–", (name, value)
        else:
            assert abs(float(re.sub("[^0-9.]", "", value)) - want) < 0.001, (name, value, want)
    # The bars of the course follow each other and fill the lane.
    bars = dialog.locator(".flow-track span").evaluate_all("all => all.map(e => [parseFloat(e.style.left), parseFloat(e.style.width)])")
    assert len(bars) >= 3
    at = 0
    for left, width in sorted(bars):
        assert abs(left - at) < 0.01, bars
        at = left + width
    assert abs(at - 100) < 0.01, bars
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    page.wait_for_timeout(2500)  # looks go on meanwhile
    assert page.evaluate("document.activeElement.dataset.key") == row.get_attribute("data-key"), "the focus comes back, and stays"
    expect(find(page, "no such request")).to_have_count(0)
    expect(page.locator("#rows-empty")).to_contain_text("No kept request matches")
    find(page, "")


def check_hostile(page, load):
    load.send({"prompt": "x", "max_tokens": 4}, {"X-Request-Id": HOSTILE})
    row = find(page, "onerror")
    expect(row).to_have_count(1)
    assert row.locator(".id").evaluate("e => e.textContent") == "cmpl-" + HOSTILE
    assert row.locator(".id *").count() == 0, "an id became markup"
    row.click()
    page.wait_for_timeout(500)
    assert page.locator("#detail-title").evaluate("e => e.textContent") == "cmpl-" + HOSTILE
    assert page.locator("img").count() == 1 and page.locator("body script").count() == 0
    assert page.title() != "pwned"
    page.keyboard.press("Escape")
    find(page, "")


def preempted(load, base):
    """The id of a request that was preempted: 16 of 200 tokens and more do not fit into a KV cache of 1,424."""
    body = {"prompt": "The harbour in the year under review. " * 6, "max_tokens": 140, "ignore_eos": True}
    burst = [threading.Thread(target=load.send, args=(body,), daemon=True) for _ in range(16)]
    for t in burst:
        t.start()
    for _ in range(240):
        for r in get(base, "/dashboard/requests?limit=200")["requests"]:
            if r["preemptions"] and r["sequences"] == 1:
                return r["id"]
        time.sleep(1)
    raise AssertionError("no request was preempted")


def check_sequences_and_preemption(page, load, base):
    load.send({"prompt": "Two answers", "max_tokens": 6, "n": 2}, {"X-Request-Id": "pair-1"})
    find(page, "pair-1").click()
    expect(page.locator("#detail .lane")).to_have_count(2)
    expect(page.locator("#detail .callout")).to_contain_text("nothing may be added across lanes")
    page.keyboard.press("Escape")
    find(page, "")
    find(page, preempted(load, base)).click()
    expect(page.locator("#detail .flow-row[data-state=preempted] .flow-track span").first).to_be_visible()
    page.keyboard.press("Escape")
    find(page, "")


def check_figures(page, base):
    """At rest: what the page shows is what the JSON and /metrics say."""
    page.get_by_role("button", name="15 min").click()
    page.wait_for_timeout(2500)
    r = get(base, "/dashboard/state?window=900")["stages"][0]["replicas"][0]
    shown = page.evaluate("""async (latency) => {
      const f = await import('/dashboard/format.js');
      return Object.entries(latency).map(([name, p]) => {
        const cells = [...document.querySelectorAll(`tr[data-measure="${name}"] td`)].slice(0, 3).map(c => c.textContent);
        return [name, cells, [p.p50, p.p90, p.p99].map(f.duration)];
      });
    }""", r["latency"])
    for name, cells, want in shown:
        assert cells == want and "–" not in cells, (name, cells, want)
    metrics = get(base, "/metrics")

    def total(family):
        return sum(float(v) for v in re.findall(rf"^{family}(?:{{[^}}]*}})? ([0-9.e+]+)$", metrics, re.M))

    assert total("vllm:request_success_total") == r["recent"]["sequences"]
    assert total("vllm:generation_tokens_total") == r["core"]["generation_tokens_total"]
    assert total("vllm:num_preemptions_total") == r["core"]["preemptions_total"] > 0
    assert total("vllm:request_queue_time_seconds_count") == r["latency"]["queued"]["n"]
    assert total("vllm:inter_token_latency_seconds_count") == r["latency"]["itl"]["n"]
    states = {s["state"]: s["ms"] for s in r["recent"]["states"]}
    split = 1000 * sum(total(f"vllm:request_{phase}_time_seconds_sum") for phase in ("queue", "prefill", "decode"))
    assert abs(sum(states.values()) / split - 1) < 0.02, (states, split)
    assert "http_requests_total" in metrics and "/dashboard" not in metrics, "looking is not counted"


def check_trouble(page, watch, folder):
    watch.expected = True
    page.context.set_offline(True)
    expect(page.locator("#link")).to_contain_text("Stale since", timeout=15000)
    expect(page.locator("#banner")).to_contain_text("cannot be reached. Figures are from")
    assert page.locator("body").get_attribute("data-stale") is not None
    shot(page, folder, "stale")
    page.context.set_offline(False)
    expect(page.locator("#link")).to_have_text("Live", timeout=20000)
    expect(page.locator("#banner")).to_be_hidden()
    page.route("**/dashboard/state*", lambda r: r.fulfill(status=500, content_type="application/json", body='{"error":"it broke"}'))
    expect(page.locator("#link")).to_have_text("Error", timeout=15000)
    expect(page.locator("#banner")).to_contain_text("it broke")
    page.unroute("**/dashboard/state*")
    expect(page.locator("#link")).to_have_text("Live", timeout=20000)
    watch.expected = False


def check_keyboard(page):
    page.locator("body").click(position={"x": 3, "y": 300})
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('#rows button')"), "after the search comes the list"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", "the focus is visible"
    unnamed = page.evaluate("[...document.querySelectorAll('button, input')].filter(e => !(e.textContent.trim() || e.getAttribute('aria-label'))).length")
    assert unnamed == 0


def main():
    base, off, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    began = time.time()

    def done(what):
        print(f"   {time.time() - began:5.1f} s  {what}", flush=True)

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        check_empty(browser, base, folder)
        check_recording_off(browser, off, folder)
        done("empty, and with recording off")
        load = Load(base, "smollm2")
        load.start()
        with opened(browser, base, "dark", DESKTOP) as (page, watch):
            page.wait_for_timeout(int(1000 * float(os.environ.get("LOAD_SECONDS", "15"))))
            check_bars(page)
            shot(page, folder, "dashboard")
            check_search_and_waterfall(page, base, load)
            check_hostile(page, load)
            check_sequences_and_preemption(page, load, base)
            check_keyboard(page)
            page.locator("#search").evaluate("e => e.blur()")
            page.evaluate("document.activeElement.blur()")
            check_list_stands_still(page)
            done("search, waterfall, hostile id, sequences, preemption, keyboard")
            for scheme in ("dark", "light"):
                for device, name in ((DESKTOP, "desktop"), (PHONE, "phone")):
                    check_look(browser, base, scheme, device, f"{name}-{scheme}", folder, 20)
            done("dark and light, desktop and phone")
            load.stop()
            page.wait_for_timeout(500)
            check_figures(page, base)
            done("figures are those of the JSON and of /metrics")
            check_trouble(page, watch, folder)
            done("stale, and errors")
        with opened(browser, base, "dark", DESKTOP, reduced_motion="reduce") as (page, _):
            assert page.evaluate("getComputedStyle(document.querySelector('#link i')).animationName") == "none"
        assert load.answers > 20, load.answers
        browser.close()
    print(f"   {load.answers} answers under load")


main()
