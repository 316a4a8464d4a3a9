"""Answers that outlive a connection: whoever has an Idempotency-Key asks again and reads on."""
import http.client
import json
import threading
import time

from cluster import SCALE


class Broken(Exception):
    pass


SECRET = []  # of the API key, where one is needed


def keyed(headers):
    return headers | {"Authorization": f"Bearer {SECRET[0]}"} if SECRET else headers


class Reply:
    """One answer to a request; events() gives (id, data) of each event to the end, and raises Broken where the connection is lost."""

    def __init__(self, port, method, path, body=None, **headers):
        self.c = http.client.HTTPConnection("127.0.0.1", port, timeout=60 * SCALE)
        given = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items() if v}
        try:
            self.c.request(method, path, json.dumps(body) if body else None, keyed(given))
            self.r = self.c.getresponse()
        except (OSError, http.client.HTTPException) as e:
            self.c.close()
            raise Broken(e)
        self.status = self.r.status

    def body(self):
        try:
            return json.loads(self.r.read())
        except (OSError, http.client.HTTPException) as e:
            raise Broken(e)
        finally:
            self.c.close()

    def events(self):
        name = None
        try:
            for line in self.r:
                line = line.decode().strip()
                if line.startswith("id: "):
                    name = line[4:]
                elif line.startswith("data: "):
                    yield name, line[6:]
                    if line == "data: [DONE]":
                        return
        except (OSError, http.client.HTTPException, ValueError) as e:
            raise Broken(e)
        raise Broken("it broke off")

    def all_events(self):
        """Those of an API that has no [DONE], too."""
        try:
            yield from self.events()
        except Broken as e:
            if str(e) != "it broke off":
                raise

    def close(self):
        self.c.close()


class Reader(threading.Thread):
    """Reads one answer to its end, over as many connections as that takes."""

    def __init__(self, port, body, key, by_name=False):
        super().__init__()
        self.port, self.wanted, self.key, self.by_name = port, dict(body, stream=True), key, by_name
        self.text, self.scores, self.last, self.answer = "", [], None, None
        self.tokens = self.connections = 0
        self.pause, self.heard, self.failure = 0, None, None
        self.start()

    def ask(self):
        if self.by_name and self.answer:
            return Reply(self.port, "GET", f"/v1/streams/{self.answer}", Last_Event_ID=self.last)
        return Reply(self.port, "POST", "/v1/completions", self.wanted, Idempotency_Key=self.key, Last_Event_ID=self.last)

    def read(self):
        reply = self.ask()
        if reply.status in (503, 429):  # it is being started
            reply.close()
            raise Broken(reply.status)
        assert reply.status == 200, (reply.status, reply.body())
        self.connections += 1
        for name, data in reply.events():
            if data == "[DONE]":
                reply.close()
                return
            event = json.loads(data)
            assert "error" not in event, event
            assert self.answer in (None, event["id"]), (self.answer, event)
            self.answer = event["id"]
            self.last = name or self.last
            if event["choices"]:
                self.text += event["choices"][0]["text"]
                self.scores += (event["choices"][0].get("logprobs") or {"token_logprobs": []})["token_logprobs"]
                self.tokens += 1
                now = time.monotonic()
                self.pause, self.heard = max(self.pause, now - self.heard if self.heard else 0), now

    def run(self):
        until = time.monotonic() + 120 * SCALE
        try:
            while True:
                try:
                    return self.read()
                except Broken as e:
                    assert time.monotonic() < until, f"no end of it: {e}"
                    time.sleep(0.05)
        except Exception as e:  # told by whoever joins it
            self.failure = e


def begun(c, body, key):
    """A reader who has some of its answer."""
    reader = Reader(c.port, body, key)
    c.wait("it has begun", lambda: reader.tokens > 5 or reader.failure)
    return reader


def finish(reader, whole):
    reader.join(120 * SCALE)
    assert not reader.is_alive() and reader.failure is None and reader.text == whole, (reader.failure, reader.text[-60:])
