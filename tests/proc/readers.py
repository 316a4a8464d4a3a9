"""Streams that are read to their ends while something happens to whoever writes them."""
import threading
import time

from cluster import SCALE


class Reader(threading.Thread):
    """One stream to its end: its text, its longest pause, its comments, and what went wrong."""

    def __init__(self, cluster, body):
        super().__init__()
        self.stream = cluster.stream("/v1/completions", body)
        self.text, self.pause, self.tokens, self.failure = "", 0, 0, None
        self.start()

    def run(self):
        try:
            assert self.stream.status == 200, self.stream.reply.read()
            last, ended = time.monotonic(), False
            for event in self.stream.events():
                ended = event is None
                assert event is None or "error" not in event, event
                if event and event.get("choices"):
                    self.text += event["choices"][0]["text"]
                    self.tokens += 1
                    self.pause, last = max(self.pause, time.monotonic() - last), time.monotonic()
            assert ended, "the stream broke off"
            self.stream.close()
        except Exception as e:  # told by whoever joins it
            self.failure = e


def whole(c, body):
    status, answer = c.request("POST", "/v1/completions", body)
    assert status == 200, answer
    return answer["choices"][0]["text"]


def finish(readers, texts):
    for r in readers:
        r.join(120 * SCALE)
    for r, text in zip(readers, texts):
        assert not r.is_alive(), "no end of it"
        assert r.failure is None, r.failure
        assert r.text == text, f"another answer: {r.text[-60:]!r} for {text[-60:]!r}"
