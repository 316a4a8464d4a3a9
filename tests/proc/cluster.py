"""Clusters of real processes for tests: `with Cluster(agents=2) as c: c.hpctl("ps"); c.chat("demo", "Hello!")`."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = os.environ.get("HP_BUILD", os.path.join(ROOT, "build"))
SCALE = float(os.environ.get("HP_TIME_SCALE", "1"))
SANITIZERS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:", "WARNING: ThreadSanitizer", "Assertion")
DEMO = os.path.join(ROOT, "examples", "demo-model", "demo-q8_0.gguf")


class Failed(Exception):
    """A verb that ended with another exit code than 0; .code, .message, .hint are those of its JSON error."""

    def __init__(self, rc, error, stderr):
        self.rc = rc
        self.code = error.get("code", "")
        self.message = error.get("message", "")
        self.hint = error.get("hint", "")
        super().__init__(f"exit {rc}: {self.code}: {self.message} ({stderr.strip()[-300:]})")


def ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Cluster:
    def __init__(self, agents=3, **options):
        self.folder = tempfile.mkdtemp(prefix="hp-test-")
        self.env = dict(os.environ, HP_CONFIG_DIR=os.path.join(self.folder, "config"))
        self.agents_wanted = agents
        self.options = options

    def __enter__(self):
        try:
            args = ["local", "up", "--agents", str(self.agents_wanted), "--dir", os.path.join(self.folder, "state")]
            for key, value in self.options.items():
                args += ["--" + key.replace("_", "-"), str(value)]
            self.state = self.hpctl(*args)
            self.http = self.state["http"]
            self.port = int(self.http.rsplit(":", 1)[1])
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            self.show_logs()
        subprocess.run([os.path.join(BUILD, "hpctl"), "local", "down", "--all"], env=self.env, capture_output=True)
        complaints = self.complaints()
        shutil.rmtree(self.folder, ignore_errors=True)
        if kind is None:
            assert not complaints, "\n".join(complaints)

    def complaints(self):
        """What the sanitizers said in the logs of the processes, up to their end."""
        found = []
        for folder, _, files in os.walk(self.folder):
            if "log" in files:
                with open(os.path.join(folder, "log"), errors="replace") as f:
                    lines = f.readlines()
                for i, line in enumerate(lines):
                    if any(word in line for word in SANITIZERS):
                        found.append(os.path.relpath(folder, self.folder) + ":\n" + "".join(lines[i:i + 30]))
                        break
        return found

    def show_logs(self):
        for folder, _, files in os.walk(os.path.join(self.folder, "state")):
            if "log" in files:
                with open(os.path.join(folder, "log"), errors="replace") as f:
                    print("# --", os.path.relpath(folder, self.folder))
                    print("".join("# " + line for line in f.readlines()[-25:]))

    # ---- verbs ----

    def run(self, *args, timeout=120, stdin=None):
        return subprocess.run([os.path.join(BUILD, "hpctl"), *args], env=self.env, capture_output=True, text=True, input=stdin, timeout=timeout * SCALE)

    def hpctl(self, *args, timeout=120, stdin=None):
        done = self.run(*args, "-o", "json", timeout=timeout, stdin=stdin)
        try:
            value = json.loads(done.stdout) if done.stdout.strip() else None
        except ValueError:
            raise AssertionError(f"hpctl {' '.join(args)} printed no JSON: {done.stdout[:300]} {done.stderr[:300]}")
        if done.returncode:
            raise Failed(done.returncode, (value or {}).get("error", {}), done.stderr)
        return value

    def deploy(self, name="demo", model=DEMO, *args):
        return self.hpctl("deploy", model, "--name", name, *args, timeout=180)

    def take_away(self, name):
        """Undeploys what may be there: one that failed goes by itself, at any moment."""
        done = self.run("undeploy", name)
        assert done.returncode in (0, 4), done.stderr

    def weights_of_its_own(self, last):
        """The demo model with another last byte, so that its last chunk is sent and not found."""
        path = os.path.join(self.folder, f"other{last}.gguf")
        with open(DEMO, "rb") as f, open(path, "wb") as out:
            content = bytearray(f.read())
            content[-1] ^= last & 255
            out.write(content)
        return path

    # ---- processes ----

    def local(self):
        return self.hpctl("local", "ls")[0]

    def agent(self, name):
        return next(a for a in self.local()["agents"] if a["name"] == name)

    def pids(self):
        """By name."""
        state = self.local()
        return {"coordinator": state["coordinator"]["pid"], **{a["name"]: a["pid"] for a in state["agents"]}}

    def kill(self, name, which=signal.SIGKILL):
        pid = self.local()["coordinator"]["pid"] if name == "coordinator" else self.agent(name)["pid"]
        os.kill(pid, which)
        if which == signal.SIGKILL:
            self.wait(f"{name} is no more", lambda: ended(pid))
        return pid

    def member(self, name):
        return next((m["state"] for m in self.hpctl("node", "ls") if m["name"] == name), None)

    def sequences_opened(self):
        """So far, by this coordinator."""
        return int(re.search(r"^hp_sequences_opened_total (\d+)", self.request("GET", "/metrics")[1], re.M).group(1))

    def wait(self, what, check, seconds=20):
        until = time.monotonic() + seconds * SCALE
        last = None
        while time.monotonic() < until:
            try:
                last = check()
                if last:
                    return last
            except (Failed, OSError, http.client.HTTPException) as e:
                last = e
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {what} (last: {last})")

    def wait_serving(self, name="demo", seconds=30):
        self.wait(f"{name} serves", lambda: self.hpctl("describe", name)["state"] == "serving", seconds)

    # ---- HTTP ----

    def request(self, method, path, body=None, headers=None, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SCALE)
        data = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
        connection.request(method, path, data, headers or {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        kind = reply.getheader("Content-Type", "")
        return reply.status, json.loads(text) if kind.startswith("application/json") else text.decode()

    def chat(self, model, content, **fields):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        return self.request("POST", "/v1/chat/completions", {"model": model, "messages": messages, "temperature": 0, **fields})

    def answer(self, model, content, **fields):
        status, body = self.chat(model, content, **fields)
        assert status == 200, (status, body)
        return body["choices"][0]["message"]["content"]

    def stream(self, path, body, timeout=60):
        return Stream(self.port, path, dict(body, stream=True), timeout * SCALE)

    def stream_gaps(self):
        """Seconds between the tokens of one stream of "demo", the first's wait included."""
        gaps, last = [], time.monotonic()
        stream = self.stream("/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 100, "temperature": 0})
        for event in stream.events():
            assert event is None or "error" not in event, event
            gaps.append(time.monotonic() - last)
            last = time.monotonic()
        stream.close()
        return gaps


class Stream:
    """Server-sent events, one by one; close() hangs up."""

    def __init__(self, port, path, body, timeout):
        data = json.dumps(body).encode()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        self.socket.sendall(head.encode() + data)
        self.reply = http.client.HTTPResponse(self.socket)
        self.reply.begin()
        self.status = self.reply.status

    comments = 0  # lines that say that the answer goes on

    def events(self):
        for line in self.reply:
            line = line.decode().strip()
            self.comments += line.startswith(":")
            if line.startswith("data: "):
                if line == "data: [DONE]":
                    yield None
                    return
                yield json.loads(line[6:])

    def close(self):
        self.reply.close()
        self.socket.close()


def read_on(streams, texts):
    """What completions say from here to their ends, one stream after the other, is added to their texts; returns the longest pause in seconds."""
    longest = 0
    for i, events in enumerate(streams):
        last = time.monotonic()
        for part in events:
            if part and part.get("choices"):
                texts[i] += part["choices"][0]["text"]
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
    return longest


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
