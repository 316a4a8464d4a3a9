"""Hostile HTTP clients against a real coordinator: what a stranger sends is measured before it is read, and nobody else waits for it."""
# Waits: for clients that are slow.
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))
from cluster import BUILD, Cluster, DEMO, SCALE  # noqa: E402
from tap import main, test  # noqa: E402

CHAT = "/v1/chat/completions"
MIB = 1 << 20


def head(method, path, *lines):
    return ("\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines]) + "\r\n\r\n").encode()


def post(body, *lines, path=CHAT):
    return head("POST", path, "Content-Type: application/json", f"Content-Length: {len(body)}", *lines) + body


def connect(port, timeout=30):
    return socket.create_connection(("127.0.0.1", port), timeout=timeout * SCALE)


def read_all(s):
    got = b""
    try:
        while True:
            part = s.recv(65536)
            if not part:
                return got
            got += part
    except ConnectionResetError:
        return got


def exchange(port, data, timeout=30):
    """Sends bytes, then reads until one reply is whole: (status, headers, body)."""
    with connect(port, timeout) as s:
        try:
            s.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return reply_of(s)


def reply_of(s):
    got = b""
    while b"\r\n\r\n" not in got:
        part = s.recv(65536)
        assert part, ("the connection ended without a reply", got)
        got += part
    top, _, rest = got.partition(b"\r\n\r\n")
    lines = top.decode().split("\r\n")
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
    if lines[0].split()[1] == "100":
        return reply_of(s) if not rest else reply_after(rest, s)
    while len(rest) < int(headers.get("content-length", 0)):
        rest += s.recv(65536)
    return int(lines[0].split()[1]), headers, rest


def reply_after(rest, s):
    class Fed:
        def __init__(self):
            self.first = rest

        def recv(self, n):
            first, self.first = self.first, b""
            return first or s.recv(n)
    return reply_of(Fed())


def coordinator_pid(c):
    return c.local()["coordinator"]["pid"]


def resident(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


class Patience:
    """The longest that GET /health took while something went on."""

    def __init__(self, port):
        self.port, self.worst, self.stop, self.asked, self.failure = port, 0.0, False, 0, None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stop and not self.failure:
            started = time.monotonic()
            try:
                status, _, _ = exchange(self.port, head("GET", "/health"))
                assert status == 200, status
            except (OSError, AssertionError) as e:
                self.failure = e
            self.worst = max(self.worst, time.monotonic() - started)
            self.asked += 1
            time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()
        assert self.asked and not self.failure, self.failure


def chat_body(text, **fields):
    return json.dumps({"model": "demo", "messages": [{"role": "user", "content": text}], **fields}).encode()


@test
def what_is_sent_is_judged_at_its_headers():
    with Cluster(agents=1, cores=1) as c:
        for check in (declared_lengths, endless_chunks, other_sites, wrong_types, ambiguous_framing, any_bytes, methods, no_requests, readiness, keys):
            check(c)
            print(f"# {check.__name__}", flush=True)


def declared_lengths(c):
    before = resident(coordinator_pid(c))
    for length in (64 * MIB, 10 ** 9, 10 ** 15):
        started = time.monotonic()
        status, headers, body = exchange(c.port, head("POST", CHAT, "Content-Type: application/json", f"Content-Length: {length}"))
        assert status == 413 and "bytes" in json.loads(body)["error"]["message"], (length, status, body)
        assert time.monotonic() - started < 2 * SCALE
        assert headers["connection"] == "close", headers
    # One who sends it all the same hears the answer too, and it is not kept.
    status, _, body = exchange(c.port, post(b"x" * (20 * MIB)))
    assert status == 413, (status, body)
    assert resident(coordinator_pid(c)) - before < 40 * MIB * SCALE
    assert exchange(c.port, head("POST", CHAT, "Content-Length: 99999999999999999999999999"))[0] in (400, 413)
    assert exchange(c.port, head("POST", CHAT, "Content-Length: -5"))[0] == 400


def endless_chunks(c):
    chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
    with connect(c.port) as s:
        s.sendall(head("POST", CHAT, "Content-Type: application/json", "Transfer-Encoding: chunked"))
        sent = 0
        try:
            for _ in range(64):
                s.sendall(chunk)
                sent += 1
        except (BrokenPipeError, ConnectionResetError):
            pass
        status, _, body = reply_of(s)
        assert status == 413 and json.loads(body)["error"]["code"] == "limit", (status, body, sent)
    body = chat_body("x", n=1000)
    small = head("POST", CHAT, "Content-Type: application/json", "Transfer-Encoding: chunked") + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    assert exchange(c.port, small)[0] == 400


def other_sites(c):
    def ask(host, *lines):
        data = (f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\n" + "".join(line + "\r\n" for line in lines) + "\r\n").encode()
        status, headers, body = exchange(c.port, data)
        assert not any(h.startswith("access-control") for h in headers), headers
        return status, json.loads(body)

    for own in ("localhost", f"localhost:{c.port}", "127.0.0.1", f"127.0.0.1:{c.port}", "127.8.9.1", "[::1]:80", "LOCALHOST"):
        assert ask(own)[0] == 200, own
    for foreign in ("evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "localhost.evil.example:80", "10.0.0.1", "[::2]", "127.1", "x"):
        status, body = ask(foreign)
        assert status == 403 and "--http-host" in body["error"]["message"], (foreign, status, body)
    for origin in ("http://evil.example", "https://localhost.evil.example", "null", "file://", "http://127.0.0.1.evil.example"):
        status, body = ask("localhost", f"Origin: {origin}")
        assert status == 403, (origin, status, body)
    assert ask("localhost", "Origin: http://localhost:3000")[0] == 200
    # A preflight gets no leave.
    status, headers, _ = exchange(c.port, head("OPTIONS", CHAT, "Origin: http://localhost:3000", "Access-Control-Request-Method: POST"))
    assert status == 405 and "access-control-allow-origin" not in headers, (status, headers)


def wrong_types(c):
    body = chat_body("x")

    def ask(*lines):
        status, _, answer = exchange(c.port, head("POST", CHAT, *lines, f"Content-Length: {len(body)}") + body)
        return status, json.loads(answer)["error"]
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/jsonx"):
        status, error = ask(f"Content-Type: {kind}")
        assert status == 415 and "application/json" in error["message"], (kind, status, error)
    for coding in ("gzip", "deflate", "identity, gzip"):
        status, error = ask("Content-Type: application/json", f"Content-Encoding: {coding}")
        assert status == 415 and "compressed" in error["message"], (coding, status, error)
    assert ask("Content-Type: application/json", "Content-Encoding: Identity")[0] == 404
    form = "Content-Type: application/x-www-form-urlencoded"  # what `curl -d` says
    for lines in (["Content-Type: application/json; charset=utf-8"], ["Content-Type: APPLICATION/JSON"], ["X-No-Type: 1"], [form], [form + "; charset=utf-8"], [form, "User-Agent: curl/8.5.0", "Accept: */*"]):
        status, error = ask(*lines)
        assert status == 404 and "demo" in error["message"], (lines, status, error)
    # What a browser sends for a page, with each of the headers that say so, alone and together.
    agent = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
    marks = (["Origin: http://localhost:3000"], ["Sec-Fetch-Site: cross-site"], ["Sec-Fetch-Site: none"], [agent], ["sec-fetch-site: same-site", "Sec-Fetch-Mode: no-cors", agent])
    for lines in marks:
        status, error = ask(form, *lines)
        assert status == 415 and "browser" in error["message"], (lines, status, error)
    for origin in ("http://evil.example", "null"):
        for kind in (form, "Content-Type: application/json", "X-No-Type: 1"):
            status, error = ask(kind, f"Origin: {origin}", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", agent)
            assert status == 403 and error["code"] == "origin_not_allowed", (origin, kind, status, error)


def ambiguous_framing(c):
    """Shapes that two HTTP parsers read as different requests: refused, and what follows is not taken for another request."""
    hidden = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    shapes = [
        ["Content-Length: 4", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 4"],
        ["Content-Length: 4", "Content-Length: 40"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding : chunked"],
        ["Content-Length : 4"],
        ["Content-Length: 4, 40"],
        ["Content-Length: +4"],
        ["Content-Length: 0x4"],
        ["Host: evil.example", "Content-Length: 4"],
    ]
    for shape in shapes:
        with connect(c.port) as s:
            s.sendall(head("POST", CHAT, "Content-Type: application/json", *shape) + b"0\r\n\r\n" + hidden)
            got = read_all(s)
        assert got.startswith(b"HTTP/1.1 4"), (shape, got[:200])
        assert b"HTTP/1.1 2" not in got and b"hp_" not in got, (shape, got[:400])
    with connect(c.port) as s:
        s.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert reply_of(s)[0] == 400
    # As to a proxy: the host that is asked is the one that the target names.
    for target, host, expected in (("http://localhost/health", "localhost", 200), ("HTTP://LocalHost:80/health", "localhost:80", 200), ("http://evil.example/health", "localhost", 400), ("http://localhost.evil/health", "localhost", 400)):
        with connect(c.port) as s:
            s.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            status = reply_of(s)[0]
        assert status == expected, (target, host, status)


def any_bytes(c):
    body = json.dumps({"model": "x" * 99 + "\u00e9", "messages": [{"role": "user", "content": "x"}]}, ensure_ascii=False).encode()
    status, _, answer = exchange(c.port, post(body))
    assert status == 404 and json.loads(answer)["error"]["code"] == "model_not_found", answer
    for path in ("/%ff", "/v1/models/%ff%fe", "/%00", "/health%00", "/" + "%c3" * 200, "/ready/%ff"):
        status, _, answer = exchange(c.port, head("GET", path))
        assert status in (404, 503), (path, status)
        assert json.loads(answer), (path, answer)
    for text in ('{"model": "m", "prompt": "\\u0000"}', '{"model": "m", "prompt": "x", "seed": 99999999999999999999999}', '{"model": "m", "prompt": "x", "top_k": 1e999}'):
        status, _, answer = exchange(c.port, post(text.encode(), path="/v1/completions"))
        assert status == 400 and "JSON_" not in answer.decode(), (text, status, answer)


def methods(c):
    status, headers, _ = exchange(c.port, head("GET", CHAT))
    assert status == 405 and headers["allow"] == "POST", headers
    status, headers, _ = exchange(c.port, head("DELETE", "/v1/models"))
    assert status == 405 and headers["allow"] == "GET, HEAD" and headers["x-request-id"].startswith("req_"), headers


def no_requests(c):
    """What libmicrohttpd refuses by itself, before there is a request: by its own words, and the connection ends."""
    for data, status in ((b"GARBAGE\r\n\r\n", b""), (b"GET / HTTP/3.0\r\nHost: x\r\n\r\n", b"HTTP/1.1 505 "), (head("GET", "/" + "a" * 40000), b"HTTP/1.1 414 "),
                         (head("GET", "/health", "X: " + "a" * 40000), b"HTTP/1.1 431 "), (head("GET", "/health", "X"), b"HTTP/1.1 400 ")):
        with connect(c.port) as s:
            s.sendall(data)
            got = read_all(s)
        assert got.startswith(status) and bool(got) == bool(status) and (not got or b"Connection: close" in got), (data[:40], got[:200])


def readiness(c):
    assert exchange(c.port, head("GET", "/health"))[0] == 200
    status, _, body = exchange(c.port, head("GET", "/ready"))
    assert status == 503 and json.loads(body) == {"ready": False, "why": "nothing is deployed", "models": []}, (status, body)
    c.deploy("demo", DEMO, "--compute", "f32", "--max-context", "512")
    for path in ("/ready", "/ready/demo", "/ready?model=demo"):
        status, _, body = exchange(c.port, head("GET", path))
        assert status == 200 and json.loads(body)["models"][0]["ready"] is True, (path, status, body)
    assert exchange(c.port, head("GET", "/ready/other"))[0] == 404
    pid = c.kill("a0", signal.SIGKILL)
    assert pid
    c.wait("it is not ready without its agent", lambda: exchange(c.port, head("GET", "/ready/demo"))[0] == 503, 20)
    status, _, body = exchange(c.port, head("GET", "/ready"))
    row = json.loads(body)["models"][0]
    assert row["ready"] is False and row["why"], row


def keys(c):
    key = c.hpctl("key", "create", "one")["key"]
    status, headers, body = exchange(c.port, post(chat_body("x")))
    assert status == 401 and headers["www-authenticate"] == "Bearer" and json.loads(body)["error"]["code"] == "invalid_api_key", (status, headers, body)
    assert exchange(c.port, post(chat_body("x"), "Authorization: Bearer wrong"))[0] == 401
    assert exchange(c.port, head("GET", "/v1/models", f"Authorization: Bearer {key}"))[0] == 200
    assert exchange(c.port, head("GET", "/metrics"))[0] == 401
    status, _, body = exchange(c.port, head("GET", "/ready"))
    assert "models" not in json.loads(body), body
    # Without a key no byte of a body is kept.
    pid = coordinator_pid(c)
    before = resident(pid)
    held = []
    for _ in range(8):
        s = connect(c.port)
        s.sendall(head("POST", CHAT, "Content-Type: application/json", f"Content-Length: {8 * MIB}"))
        assert reply_of(s)[0] == 401
        try:
            s.sendall(b" " * (7 * MIB))
        except (BrokenPipeError, ConnectionResetError):
            pass
        held.append(s)
    assert resident(pid) - before < 10 * MIB * SCALE, resident(pid) - before
    for s in held:
        s.close()
    c.hpctl("key", "rm", "one")
    assert exchange(c.port, head("GET", "/v1/models"))[0] == 200


def beside_a_stream(c, name, body):
    """Sends a body while another client reads a stream and a third asks for /health; how long each of them waited at most."""
    stop, gaps, failures = threading.Event(), [0.0], []

    def stream():
        while not stop.is_set() and not failures:
            s = c.stream(CHAT, json.loads(chat_body("Hello!", ignore_eos=True, max_tokens=200)))
            last = time.monotonic()
            for event in s.events():
                now = time.monotonic()
                gaps[0] = max(gaps[0], now - last)
                last = now
                if event and "error" in event:
                    failures.append(event)
            s.close()
    listener = threading.Thread(target=stream)
    listener.start()
    with Patience(c.port) as patience:
        status, _, answer = exchange(c.port, post(body), timeout=60)
        time.sleep(0.2)
    stop.set()
    listener.join()
    print(f"# {name}: {status}, longest gap of the stream {gaps[0] * 1e3:.0f} ms, of /health {patience.worst * 1e3:.0f} ms", flush=True)
    assert status == 400, (name, status, answer[:300])
    assert not failures, (name, failures)
    assert patience.worst < 1.0 * SCALE and gaps[0] < 2.0 * SCALE, (name, patience.worst, gaps[0])


@test
def large_prompts_and_bodies_hold_nobody_up():
    """Ratios, not seconds: the same clients beside an idle coordinator and beside the attack."""
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        bodies = {
            "a prompt of 7 MB": chat_body("hello world " * (7 * MIB // 12)),
            "7 MB of lists": b'{"model": "demo", "x": [' + b"[]," * (7 * MIB // 3) + b'[]], "messages": []}',
            "7 MB of numbers": b'{"model": "demo", "x": [' + b"1," * (7 * MIB // 2) + b'1], "messages": []}',
            "deep lists": b'{"model": "demo", "x": ' + b"[" * (7 * MIB) + b"}",
            "900 000 lists": b'{"model": "demo", "x": [' + b"[]," * 440000 + b'[]], "messages": [{"role": "user", "content": "x"}], "n": 1000}',
            "a schema of 4000 ways": chat_body("x", guided_json={"oneOf": [{"const": i} for i in range(4000)]}),
            "a pattern of 4000 places": chat_body("x", guided_regex="(.?){4000}(a|b)", max_tokens=500, temperature=1),
            "a shortest text of 2 MB": chat_body("x", grammar="root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(21)) + "r21 ::= [ab]"),
        }
        for name, body in bodies.items():
            beside_a_stream(c, name, body)
        status, _, answer = exchange(c.port, post(bodies["a prompt of 7 MB"]))
        error = json.loads(answer)["error"]
        assert error["code"] == "context_length_exceeded" and "maximum context length is" in error["message"] and "prompt is too long" in error["message"], error
        assert c.hpctl("describe", "demo")["state"] == "serving"
        # The same where the owner lets bodies be large.
        with Restarted(c, "--http-max-body", str(64 * MIB)) as process:
            c.wait_serving()
            before = resident(process.pid)
            beside_a_stream(c, "a prompt of 12 MB", chat_body("hello world " * MIB))
            beside_a_stream(c, "60 MiB of lists", b'{"x": [' + b"[]," * (20 * MIB - 10) + b"[]]}")
            beside_a_stream(c, "32 MiB of numbers", b'{"x": [' + b"1," * (16 * MIB) + b"1]}")
            assert resident(process.pid) - before < 200 * MIB * SCALE


def processor_seconds(pid):
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as f:
            total += int(f.read().split()[0])
    return total * 1e-9


def slowness():
    """Of this machine, now: times that a second of the one these bounds are of takes here."""
    started, n = time.process_time(), 0
    for i in range(1000000):
        n += i * i % 7
    return max(1.0, (time.process_time() - started) / 0.08)


def doubling(n):
    """Each schema refers to the next twice."""
    defs = {f"d{i}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/d{i + 1}"} for k in "ab"}, "required": ["a", "b"], "additionalProperties": False} for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{n}": {"type": "null"}}}


def message(text, more=""):
    return b'{"model": "demo", "messages": [{"role": "user", "content": "' + text.encode() + b'"}]' + more.encode() + b"}"


BREAKING = [  # name, body, what the answer names, whether it is a field; the path, if it is not the chats'
    ("10 000 stop strings", chat_body("x", stop=["x"] * 10000), "stop", True),
    ("n of a billion", chat_body("x", n=10 ** 9), "n", True),
    ("lists 100 000 deep", message("x", ', "stop": ' + "[" * 100000 + "]" * 100000), "stop", True),
    ("objects 100 000 deep", message("x", ', "metadata": ' + '{"a":' * 100000 + "1" + "}" * 100000), "metadata", True),
    ("a key that is there twice", message("x", ', "n": 1, "n": 2'), "n", False),
    ("1e999", message("x", ', "temperature": 1e999'), "too big|overflow|range|1e999", False),
    ("half of a pair", message("\\ud800"), "Unicode", False),
    ("a NUL that is escaped", message("a\\u0000b"), "messages", True),
    ("half of a letter", chat_body("x", user="\u00e9").replace(b"\\u00e9", b"\xc3"), "UTF-8 at byte 75, in its member \"user\"", False),
    ("a NUL as it is", message("a\0b"), "control|NUL|byte", False),
    ("a schema that is itself", chat_body("x", guided_json={"$ref": "#"}), "guided_json", True),
    ("a schema without an end", chat_body("x", guided_json={"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}), "guided_json", True),
    ("a schema that explodes", chat_body("x", guided_json=doubling(40)), "guided_json", True),
    ("a grammar without an end", chat_body("x", grammar='root ::= "a" root'), "grammar", True),
    ("a grammar that begins with itself", chat_body("x", grammar='root ::= root "a" | "b"'), "grammar", True),
    ("repeats of repeats", chat_body("x", guided_regex="((a{1000}){1000}){1000}"), "guided_regex", True),
    ("100 000 messages", json.dumps({"model": "demo", "messages": [{"role": "user", "content": "x"}] * 100000}).encode(), "messages", True),
    ("100 000 of logit_bias", chat_body("x", logit_bias={str(i): 1 for i in range(100000)}), "logit_bias", True),
    ("100 000 variables of the template", chat_body("x", chat_template_kwargs={f"k{i}": {} for i in range(100000)}), "chat_template_kwargs", True),
    ("20 000 tools", chat_body("x", tools=[{"type": "function", "function": {"name": f"f{i}", "parameters": {}}} for i in range(20000)]), "tools", True),
    ("45 calls of 11 000 lists", json.dumps({"model": "demo", "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": [[]] * 11000})}}] * 45}]}).encode(), "messages", True),
    ("50 000 files beside a gap", json.dumps({"input_prefix": "x", "input_suffix": "y", "input_extra": [{"filename": "a", "text": "b"}] * 50000}).encode(), "input_extra", True, "/infill"),
    ("ways of ways", chat_body("x", guided_json={"allOf": [{"anyOf": [{"properties": {f"a{i}": {"type": "string"}}}, {"properties": {f"b{i}": {"type": "integer"}}}]} for i in range(12)]}), "guided_json", True),
    ("a million token ids", json.dumps({"model": "demo", "prompt": [i % 900 for i in range(999900)]}).encode(), "prompt", True, "/v1/completions"),
    ("a million token ids in prompts", json.dumps({"model": "demo", "prompt": [list(range(2000)) for _ in range(490)], "n": 0}).encode(), "n", True, "/v1/completions"),
    ("a million numbers elsewhere", chat_body("x", stop_token_ids=[7] * 999900), "stop_token_ids", True),
    ("8 MB of text", chat_body("hello world " * 650000, n=0), "n", True),
    ("a prompt of 8 MB", chat_body("hello world " * 650000), "messages", True),
    ("a prompt of 8 MB of escapes", chat_body("\u4e16" * 1300000), "messages", True),
    ("100 000 texts of 70 bytes", json.dumps({"model": "demo", "prompt": "x", "metadata": ["hello world " * 6] * 100000, "n": 0}).encode(), "n", True, "/v1/completions"),
]


def breaking_bodies(c):
    """Each is refused by field and reason, within 50 ms of the coordinator's processor time."""
    pid, slow, worst = coordinator_pid(c), slowness(), 0.0
    for name, body, named, is_field, *path in BREAKING:
        least = 1.0
        for _ in range(3):  # of what else the coordinator did meanwhile the least is taken
            before = processor_seconds(pid)
            status, _, answer = exchange(c.port, post(body, path=path[0] if path else CHAT))
            least = min(least, processor_seconds(pid) - before)
        error = json.loads(answer)["error"]
        assert status == 400 and len(error["message"]) > 10, (name, status, answer[:300])
        assert error["param"] == named if is_field else any(w in error["message"] for w in named.split("|")), (name, error)
        worst = max(worst, least)
        assert least < 0.05 * slow, (name, least, slow)
    print(f"# {len(BREAKING)} bodies were refused within {worst * 1e3:.1f} ms of processor time each (machine {slow:.1f})", flush=True)
    # What would make other machines backtrack is a grammar like any other.
    status, _, answer = exchange(c.port, post(chat_body("x", guided_regex="(a+)+(a|aa)*b", max_tokens=20, temperature=2)))
    text = json.loads(answer)["choices"][0]["message"]["content"]
    assert status == 200 and text.endswith("b") and set(text[:-1]) == {"a"}, answer
    for name, data in (("a header of 1 MB", head("GET", "/v1/models", "X-Long: " + "x" * MIB)), ("1 MB of headers", head("GET", "/v1/models", *[f"X-{i}: {'y' * 90}" for i in range(10000)]))):
        assert exchange(c.port, data)[0] == 431, name


@test
def client_faults_are_named_and_never_500():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--max-context", "512")
        nested = "[" * 50 + "]" * 50
        cases = [
            (chat_body("x", logit_bias={"999999": 1}), 400, "logit_bias"),
            (chat_body("x", logit_bias={"999999": 1}, stream=True), 400, "logit_bias"),
            (b'{"model": "demo", "messages": [{"role": "user", "content": "x", "y": %s}]}' % nested.encode(), 200, None),
            (chat_body("word " * 2000), 400, "messages"),
            (chat_body("x", grammar="root ::= x"), 400, "grammar"),
            (chat_body("x", min_tokens=-5), 400, "min_tokens"),
            (chat_body("x", logprobs=True, top_logprobs=10**9), 400, "top_logprobs"),
            (chat_body("x", prompt_logprobs=1e999), 400, None),
        ]
        for body, wanted, param in cases:
            status, _, answer = exchange(c.port, post(body))
            got = json.loads(answer).get("error", {})
            assert status == wanted and got.get("param") == param, (body[:80], status, answer[:300])
        with Patience(c.port) as others:
            breaking_bodies(c)
        assert others.worst < 1.0 * SCALE, others.worst
        # Undeployed while it waits and while it runs.
        for fields in ({}, {"stream": True}):
            replies = []

            def ask():
                with connect(c.port) as s:
                    s.sendall(post(chat_body("Hello!", ignore_eos=True, **fields), "Connection: close"))
                    replies.append(read_all(s).decode())
            threads = [threading.Thread(target=ask) for _ in range(24)]
            for t in threads:
                t.start()
            c.wait("they wait", lambda: c.hpctl("describe", "demo")["sequences_active"] >= 4 or len(replies) > 8, 10)
            c.hpctl("undeploy", "demo")
            for t in threads:
                t.join()
            assert all(" 500 " not in r.split("\r\n")[0] for r in replies), [r[:100] for r in replies]
            refused = [r for r in replies if "was undeployed" in r]
            print(f"# {len(refused)} of {len(replies)} were cut short by undeploy", flush=True)
            assert all('\\"demo\\"' in r for r in refused)
            c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--max-context", "512")


@test
def half_closed_clients_get_their_answer_and_closed_ones_free_their_sequence():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        for stream in (False, True):
            with connect(c.port) as s:
                s.sendall(post(chat_body("Hello!", ignore_eos=True, max_tokens=100, stream=stream), "Connection: close"))
                s.shutdown(socket.SHUT_WR)
                got = read_all(s).decode()
            assert "HTTP/1.1 200" in got and ("[DONE]" in got if stream else '"completion_tokens":100' in got), got[-300:]

        def idle():
            d = c.hpctl("describe", "demo")
            return d["sequences_active"] == 0 and all(stage.get("sequences", 0) == 0 for stage in d["stages"])

        def asked_now():
            d = c.hpctl("describe", "demo")
            return d["sequences_active"] + d["sequences_waiting"]

        def cancelled():
            text = c.request("GET", "/metrics")[1]
            return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith("hp_sequences_cancelled_total"))

        # A queue of requests whose clients went away without a word.
        before, sockets = cancelled(), []
        for _ in range(32):
            s = connect(c.port)
            s.sendall(post(chat_body("Tell me a story.", ignore_eos=True)))
            sockets.append(s)
        c.wait("most of them are known", lambda: asked_now() >= 24)
        for s in sockets:
            s.close()
        c.wait("nothing runs for clients that are gone", idle, 5)
        assert cancelled() - before >= 16, (before, cancelled())


@test
def connections_without_requests_end_and_take_nobodys_descriptors():
    with Cluster(agents=1, cores=1) as c:
        started = time.monotonic()
        # A body that does not come, and headers that drip.
        with connect(c.port, 60) as silent, connect(c.port, 60) as slow:
            silent.sendall(head("POST", CHAT, "Content-Type: application/json", "Content-Length: 5000000") + b"{")
            slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
            ended, told = None, b""
            while ended is None and time.monotonic() - started < 30 * SCALE:
                try:
                    slow.sendall(b"X: y\r\n")
                    slow.settimeout(0.5)
                    part = slow.recv(1000)
                    told += part
                    if part == b"":
                        ended = time.monotonic() - started
                except socket.timeout:
                    pass
                except OSError:
                    ended = time.monotonic() - started
            assert ended and 8 < ended < 14 * SCALE, ended
            silent.settimeout(20 * SCALE)
            for reply, part in ((told, b"headers"), (read_all(silent), b"body")):
                assert reply.startswith(b"HTTP/1.1 408 ") and b"x-request-id: req_" in reply and b'"timeout"' in reply and part in reply.partition(b"\r\n\r\n")[2], reply
            assert time.monotonic() - started < 15 * SCALE
        text = c.request("GET", "/metrics")[1]
        figures = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line.startswith("hp_http_")}
        assert figures["hp_http_connections_timed_out_total"] == 2 and figures["hp_http_requests_open"] == 1, figures
        # 2000 connections that say nothing: hpctl, agents and other clients go on; also where descriptors are few.
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        for few in (False, True):
            if few:
                pid = coordinator_pid(c)
                c.kill("coordinator", signal.SIGTERM)
                c.wait("the coordinator ends", lambda: not os.path.exists(f"/proc/{pid}"), 10)
                subprocess.run(["bash", "-c", f"ulimit -n 1024; exec {BUILD}/hpctl local start --coordinator"], env=c.env, check=True, capture_output=True)
                c.wait("the agent is back", lambda: c.member("a0") == "ready", 20)
            idle = []
            for _ in range(2000):
                s = socket.socket()
                s.setblocking(False)
                s.connect_ex(("127.0.0.1", c.port))
                idle.append(s)
            time.sleep(1)
            started = time.monotonic()
            assert c.member("a0") == "ready"
            assert c.hpctl("ps") == []
            took = time.monotonic() - started
            if not few:
                assert exchange(c.port, head("GET", "/health"))[0] == 200
            print(f"# few={few}: hpctl took {took:.2f} s beside 2000 idle connections", flush=True)
            for s in idle:
                s.close()
            assert c.member("a0") == "ready"


class Restarted:
    """The cluster's coordinator again, on its ports, with options of its own."""

    def __init__(self, c, *options, descriptors=None):
        self.c = c
        if c.local()["coordinator"]["state"] == "running":
            self.end(coordinator_pid(c))
        c.hpctl("local", "start", "--coordinator")
        pid = coordinator_pid(c)
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            self.command = [part.decode() for part in f.read().split(b"\0") if part]
        self.end(pid)
        self.process = subprocess.Popen(self.command + list(options), stderr=subprocess.DEVNULL, env=c.env,
                                        preexec_fn=descriptors and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))))
        c.wait("it answers", lambda: c.request("GET", "/health")[0] == 200)

    def end(self, pid):
        os.kill(pid, signal.SIGTERM)
        self.c.wait("the coordinator ends", lambda: not os.path.exists(f"/proc/{pid}"), 15)

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


@test
def options_say_who_may_come_and_how_much_they_may_send():
    with Cluster(agents=1, cores=1) as c:
        key = c.hpctl("key", "create", "one")["key"]

        def models(*lines, host="localhost"):
            data = (f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\n" + "".join(line + "\r\n" for line in lines) + "\r\n").encode()
            return exchange(c.port, data)[0]

        assert models() == 401 and models(f"Authorization: Bearer {key}") == 200
        options = ("--http-open", "--http-host", "api.example", "--http-host", "gpu-box", "--http-max-body", "100000", "--http-origin", "https://app.example", "--http-origin", "http://10.0.0.5:3000")
        with Restarted(c, *options):
            # Pages of the origins that were named may ask and read; others may not, also of the same host at another port.
            for origin in ("https://app.example", "http://10.0.0.5:3000"):
                status, headers, _ = exchange(c.port, head("OPTIONS", CHAT, f"Origin: {origin}", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization, x-stainless-os"))
                assert status == 204 and headers["access-control-allow-origin"] == origin and headers["vary"] == "Origin", (status, headers)
                assert headers["access-control-allow-headers"] == "authorization, x-stainless-os" and "POST" in headers["access-control-allow-methods"], headers
                status, headers, _ = exchange(c.port, head("GET", "/v1/models", f"Origin: {origin}"))
                assert status == 200 and headers["access-control-allow-origin"] == origin and "x-request-id" in headers["access-control-expose-headers"], (status, headers)
                assert "access-control-allow-credentials" not in headers, headers
                assert exchange(c.port, head("GET", "/nothing", f"Origin: {origin}"))[1]["access-control-allow-origin"] == origin
            for origin in ("https://app.example:8443", "http://app.example", "https://app.example.evil", "http://10.0.0.5", "null"):
                for method in ("OPTIONS", "GET"):
                    status, headers, _ = exchange(c.port, head(method, "/v1/models", f"Origin: {origin}", "Access-Control-Request-Method: POST"))
                    assert status == 403 and "access-control-allow-origin" not in headers, (origin, method, status, headers)
            assert models() == 200
            assert models(host="api.example") == 200 and models("Origin: https://gpu-box:8443", host="gpu-box:80") == 200
            assert models(host="other.example") == 403 and models("Origin: https://api.example.evil") == 403
            assert exchange(c.port, post(b" " * 100001))[0] == 413
            assert exchange(c.port, post(b" " * 100000))[0] == 400
        with Restarted(c) as process:
            # Bodies of all clients together have a budget (16 of 8 MiB): the rest is refused, and the coordinator lives.
            before, held, refused = resident(process.pid), [], 0
            for _ in range(24):
                s = connect(c.port)
                s.sendall(head("POST", CHAT, f"Authorization: Bearer {key}", f"Content-Length: {8 * MIB}"))
                try:
                    s.sendall(b" " * (8 * MIB - 1))
                except (BrokenPipeError, ConnectionResetError):
                    pass
                held.append(s)
            time.sleep(0.5)
            grown = resident(process.pid) - before
            for s in held:
                s.settimeout(0.2)
                try:
                    refused += b" 503 " in s.recv(1000)[:20]
                except OSError:
                    pass
                s.close()
            print(f"# 24 bodies of 8 MiB: {grown / MIB:.0f} MiB more, {refused} refused", flush=True)
            assert refused >= 7 and grown < 300 * MIB * SCALE, (refused, grown)
            assert models(f"Authorization: Bearer {key}") == 200
    for wrong in (["--http-max-body", "x"], ["--http-max-body", "-1"], ["--drain-seconds", "1e9"], ["--drain-seconds", ""]):
        done = subprocess.run([os.path.join(BUILD, "hp-coordinator"), *wrong], capture_output=True, text=True, timeout=20 * SCALE)
        assert done.returncode == 2 and wrong[0] in done.stderr, (wrong, done)


@test
def one_address_does_not_take_all_connections():
    with Cluster(agents=1, cores=1) as c:
        key = c.hpctl("key", "create", "one")["key"]

        def ask(source):
            s = socket.create_connection(("127.0.0.1", c.port), timeout=5 * SCALE, source_address=(source, 0))
            s.sendall(head("GET", "/v1/models", f"Authorization: Bearer {key}"))
            return s

        # 1024 descriptors are 256 connections, of which one address may have half.
        with Restarted(c, "--http", f"0.0.0.0:{c.port}", descriptors=1024):
            held = [socket.create_connection(("127.0.0.1", c.port), timeout=5 * SCALE) for _ in range(400)]
            time.sleep(0.3)
            with ask("127.0.0.2") as other:
                assert reply_of(other)[0] == 200
            with ask("127.0.0.1") as same:
                try:
                    assert same.recv(100) == b""
                except ConnectionResetError:
                    pass
            for s in held:
                s.close()

            def is_heard():
                try:
                    return exchange(c.port, head("GET", "/v1/models", f"Authorization: Bearer {key}"))[0] == 200
                except (AssertionError, ConnectionError):
                    return False  # the others' ends have not been seen yet

            c.wait("it is heard again", is_heard, 5)


class Draining:
    """A stream that has begun and a whole request, neither of which can end: their last stage is stopped. Then SIGTERM, and what a third one hears."""

    def __init__(self, c, process):
        self.c, self.process, self.heard, self.whole, self.threads = c, process, [], [], []

    def listen(self):
        s = self.c.stream(CHAT, json.loads(chat_body("Hello!", ignore_eos=True, max_tokens=1000)))
        for event in s.events():
            self.heard.append(event)
            if len(self.heard) == 3:
                self.c.kill("a1", signal.SIGSTOP)
        s.close()

    def ask(self):
        with connect(self.c.port) as s:
            s.sendall(post(chat_body("Hello!", ignore_eos=True, max_tokens=1000), "Connection: close"))
            self.whole.append(read_all(s).decode())

    def begin(self):
        """False: one of them was over before the agent was stopped."""
        before = self.c.sequences_opened()
        self.heard, self.whole = [], []
        self.threads = [threading.Thread(target=self.ask), threading.Thread(target=self.listen)]
        self.threads[0].start()
        self.c.wait("the whole request is open", lambda: self.c.sequences_opened() > before, 10)
        self.threads[1].start()
        self.c.wait("the stream has begun", lambda: len(self.heard) > 2, 30)
        time.sleep(0.1)  # what was on its way comes
        if not self.whole and self.heard[-1] is not None and self.threads[0].is_alive():
            return True
        self.end()
        return False

    def end(self):
        self.c.kill("a1", signal.SIGCONT)
        for t in self.threads:
            t.join()

    def run(self):
        assert any(self.begin() for _ in range(20)), "answers are over before an agent can be stopped"
        os.kill(self.process.pid, signal.SIGTERM)
        third = None
        try:  # the signal is heard a moment later
            while exchange(self.c.port, head("GET", "/ready"))[0] == 200:
                time.sleep(0.005)
            third = exchange(self.c.port, post(chat_body("x")))
        except (OSError, AssertionError):
            pass  # it has ended already
        self.end()
        assert self.process.wait(timeout=60 * SCALE) == 0
        return self.heard, self.whole[0], third


@test
def sigterm_lets_streams_end_in_words():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        with Restarted(c, "--drain-seconds", "120") as process:
            c.wait("it is ready", lambda: c.request("GET", "/ready/demo")[0] == 200)
            heard, whole, third = Draining(c, process).run()
            assert heard[-1] is None and heard[-2]["choices"][0]["finish_reason"] == "length", heard[-2:]
            assert "HTTP/1.1 200" in whole, whole[:200]
            assert third[0] == 503 and third[1]["connection"] == "close" and int(third[1]["retry-after"]) > 0, third
        # Again without patience.
        with Restarted(c, "--drain-seconds", "0") as process:
            c.wait("it is ready", lambda: c.request("GET", "/ready/demo")[0] == 200)
            heard, whole, third = Draining(c, process).run()
            assert heard[-1] is None and "stopping" in heard[-2]["error"]["message"], heard[-2:]
            assert "HTTP/1.1 503" in whole and "stopping" in whole and "retry-after: " in whole.lower(), whole[:300]
            assert third is None or third[0] == 503, third


def connections(port, n):
    return [socket.create_connection(("127.0.0.1", port), 1) for _ in range(n)]


@test
def the_gateway_answers_again_when_descriptors_return():
    with Cluster(agents=1, cores=1) as c:
        pid = c.local()["coordinator"]["pid"]
        for _ in range(3):
            held = connections(c.port, 2)
            time.sleep(0.4)
            limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), limits[1]))
            held += connections(c.port, 3)
            time.sleep(0.6)
            for s in held:
                s.close()
            time.sleep(0.4)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            assert c.request("GET", "/health", timeout=3)[0] == 200


main()
