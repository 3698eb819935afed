"""Load for the dashboard's test: completions of many lengths, some shared prefixes, some clients that go away, some named ids."""
import http.client
import json
import random
import threading
import urllib.parse

HOSTILE = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PREFIX = "The report of the committee on the state of the harbour, its quays, cranes and pilots, in the year under review. " * 4


class Load:
    """Workers that send one request after another until stop() is called; answers counts what ended well."""

    def __init__(self, base, model, workers=10, seed=7):
        url = urllib.parse.urlsplit(base)
        self.host, self.port, self.model = url.hostname, url.port, model
        self.done = threading.Event()
        self.lock = threading.Lock()
        self.answers = 0
        self.threads = [threading.Thread(target=self._work, args=(random.Random(seed + i), i), daemon=True) for i in range(workers)]

    def start(self):
        for t in self.threads:
            t.start()

    def stop(self):
        self.done.set()
        for t in self.threads:
            t.join(60)

    def _work(self, rnd, worker):
        while not self.done.is_set():
            words = " ".join(rnd.choice(["quay", "tide", "crane", "pilot", "cargo", "storm"]) for _ in range(rnd.randint(4, 120)))
            prompt = (PREFIX if rnd.random() < 0.5 else "") + words
            body = {"prompt": prompt, "max_tokens": rnd.choice([8, 24, 60, 140]), "ignore_eos": rnd.random() < 0.7}
            gone = rnd.random() < 0.06
            headers = {"traceparent": f"00-{rnd.getrandbits(128):032x}-{rnd.getrandbits(64):016x}-01"} if rnd.random() < 0.3 else {}
            if rnd.random() < 0.06:
                body["n"] = 2
            self.send(body, headers, leave=gone)

    def send(self, body, headers=None, leave=False):
        """Sends one completion; leave closes the connection before it ends. Returns the answer, or None."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        try:
            payload = dict(body, model=self.model, stream=leave)
            connection.request("POST", "/v1/completions", json.dumps(payload), {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            if leave:
                response.read(64)
                return None
            answer = json.loads(response.read())
            if response.status == 200:
                with self.lock:
                    self.answers += 1
            return answer
        finally:
            connection.close()
