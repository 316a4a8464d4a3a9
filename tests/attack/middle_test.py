"""A man in the middle of the data channel: bytes are flipped, dropped, doubled, held back and swapped between two agents. Over TCP no sequence gets a wrong token without an error, and all goes well once he is gone."""
# Waits: for connections that are taken for lost.
import os
import random
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import BUILD, Cluster, DEMO, SCALE
from tap import main, test

CHANCE = random.Random(5)
SHIM = os.path.join(BUILD, "tests", "attack", "shims", "divert.so")


class Middle:
    """Listens for one port of an agent's, and passes on what comes, after `mangle(bytes)` gave what is to be sent in its place."""

    def __init__(self, port):
        self.port, self.mangle, self.mangled, self.most, self.met = port, None, 0, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
                self.met += 1
                far = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                return
            for s in (near, far):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.pass_on, args=(a, b), daemon=True).start()

    def pass_on(self, a, b):
        try:
            while True:
                got = a.recv(65536)
                if not got:
                    break
                mangle = self.mangle
                if mangle and self.mangled < self.most:
                    changed = mangle(got)
                    self.mangled += changed != got
                    got = changed
                b.sendall(got)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def seldom(change, chance=0.04):
    return lambda got: change(got) if CHANCE.random() < chance else got


def flip(got):
    at = CHANCE.randrange(len(got))
    return got[:at] + bytes([got[at] ^ 1 << CHANCE.randrange(8)]) + got[at + 1:]


def drop(got):
    at = CHANCE.randrange(len(got))
    return got[:at] + got[at + CHANCE.randrange(1, 40):]


def swap(got):
    at = CHANCE.randrange(len(got))
    return got[at:] + got[:at]


def late(got):
    time.sleep(0.3)
    return got


MANGLES = {"flipped": seldom(flip), "dropped": seldom(drop), "doubled": seldom(lambda got: got + got), "swapped": seldom(swap), "noise between": seldom(lambda got: CHANCE.randbytes(50) + got),
           "late": seldom(late)}


def listening(pid):
    """Ports at which a process takes connections."""
    lines = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True).stdout.splitlines()
    return [int(line.split()[3].rsplit(":", 1)[1]) for line in lines if f"pid={pid}," in line]


class Tapped:
    """Two agents whose data ports are reached by way of men in the middle."""

    def __init__(self, kind, *options, place=("--agents", "a0,a1")):
        self.kind, self.options = kind, (*place, *options)

    def __enter__(self):
        assert os.path.exists(SHIM), f"{SHIM} is not built"
        self.file = f"/tmp/hp-divert-{os.getpid()}"
        open(self.file, "w").close()
        os.environ.update(LD_PRELOAD=SHIM, HP_DIVERT_FILE=self.file)
        try:
            self.cluster = Cluster(agents=2, cores=1, data=self.kind)
            c = self.cluster.__enter__()
        finally:
            del os.environ["LD_PRELOAD"], os.environ["HP_DIVERT_FILE"]
        self.middles = [Middle(port) for name in ("a0", "a1") for port in listening(c.agent(name)["pid"])]
        with open(self.file, "w") as out:  # for which agents wait before they connect to each other
            out.write("".join(f"{m.port} {m.listener.getsockname()[1]}\n" for m in self.middles))
        c.run("topo", "--measure")  # a measurement that waited for them may have been given up
        c.deploy("demo", DEMO, "--compute", "f32", *self.options)
        self.pids = [c.agent("a0")["pid"], c.agent("a1")["pid"], c.local()["coordinator"]["pid"]]
        assert any(m.met for m in self.middles), "agents reach each other without a man between them"
        return self

    def __exit__(self, *why):
        for m in self.middles:
            m.mangle = None
            m.listener.close()
        try:
            self.cluster.__exit__(*why)
        finally:
            os.unlink(self.file)

    def ask(self):
        return self.cluster.chat("demo", [{"role": "user", "content": "Tell me a story."}], ignore_eos=True, max_tokens=60)

    def mangle(self, how, most=1 << 30):
        for m in self.middles:
            m.mangle, m.mangled, m.most = how, 0, most

    def alive(self):
        for pid in self.pids:
            os.kill(pid, 0)


@test
def over_tcp_no_token_is_wrong_without_an_error():
    with Tapped("tcp") as t:
        c = t.cluster
        status, body = t.ask()
        assert status == 200, body
        whole = body["choices"][0]["message"]["content"]
        for name, how in MANGLES.items():
            t.mangle(how, 2)  # each costs a request a link, and some seconds
            right, failed, until = 0, 0, time.monotonic() + 4 * SCALE
            while time.monotonic() < until:
                status, body = t.ask()
                if status == 200:
                    assert body["choices"][0]["message"]["content"] == whole, (name, body)
                    right += 1
                else:
                    assert body["error"]["message"], body
                    failed += 1
                    time.sleep(0.05)
            mangled = sum(m.mangled for m in t.middles)
            print(f"# {name}: {mangled} pieces, {right} answers right, {failed} with an error")
            assert mangled or name == "late", name
            t.mangle(None)
            c.wait(f"it serves after bytes were {name}: {t.ask()[1]}", lambda: t.ask()[0] == 200, 30)
            assert t.ask()[1]["choices"][0]["message"]["content"] == whole, name
            t.alive()


def later(got):
    time.sleep(0.05)
    return got


def links_measured(c):
    """Both ways. A link whose first measurement comes later, with what delays it, is no late one: it is known as it is."""
    c.wait("links are measured as they are", lambda: len(c.hpctl("topo")["links"]) == 2 and all("measured_s" in link for link in c.hpctl("topo")["links"]))


@test
def a_link_that_became_late_is_named_and_planned_with():
    with Tapped("tcp", "--prefix-cache", "off", "--speculate", "off") as t:
        c = t.cluster

        def ask():
            ids = [CHANCE.randrange(5, 95) for _ in range(80)]
            assert c.request("POST", "/v1/completions", {"model": "demo", "prompt": ids, "max_tokens": 1})[0] == 200

        def told(word):
            """How often the coordinator's log has it."""
            with open(os.path.join(c.folder, "state", "coordinator", "log")) as said:
                return said.read().count(word)

        def latency_s():
            """Of the way that is worse, as plans have it: what it was measured as and what frames showed since."""
            return max(link["latency_s"] for link in c.hpctl("topo")["links"])

        links_measured(c)
        ask()
        assert not told(" link_late ") and latency_s() < 0.03
        measured = told(" link_measured ")
        t.mangle(later)
        began = time.monotonic()
        c.wait("it is named", lambda: ask() or told(" link_late "), 30)
        print(f"# named after {time.monotonic() - began:.1f} s")
        text = c.run("topo").stdout
        assert "later than usual" in text or told(" link_measured ") > measured, text  # once nothing runs it is measured anew
        c.wait("plans have it", lambda: latency_s() > 0.03)
        planned = c.request("POST", "/v1/completions", {"model": "demo", "prompt": [7] * 80, "max_tokens": 1})[1]["timings"]["planned_s"]
        assert planned > 0.03, planned
        t.mangle(None)

        def on_time():
            ask()
            if told(" link_measured ") > measured:  # with what delayed it: frames that come sooner than that tell nothing
                c.run("topo", "--measure")
            return latency_s() < 0.03

        c.wait("it is on time", on_time, 60)


@test
def a_link_that_became_late_is_left_by_itself_within_30_s():
    with Tapped("tcp", "--prefix-cache", "off", "--speculate", "off", place=()) as t:
        c = t.cluster
        stages = c.hpctl("describe", "demo")["stages"]
        assert {s["agent"] for s in stages} == {"a0", "a1"}, stages
        links_measured(c)

        def left():
            ids = [CHANCE.randrange(5, 95) for _ in range(80)]
            assert c.request("POST", "/v1/completions", {"model": "demo", "prompt": ids, "max_tokens": 1})[0] == 200
            d = c.hpctl("describe", "demo")
            return d["state"] == "serving" and len(d["stages"]) == 1

        t.mangle(later)
        began = time.monotonic()
        c.wait("one agent has it all", left, 30)
        took = time.monotonic() - began
        print(f"# left after {took:.1f} s")
        assert took <= 30 * SCALE, took


@test
def over_ucx_whoever_ends_of_it_is_named_and_the_rest_goes_on():
    """UCX obeys what comes over its connections (docs/security.md): an agent may end of it. Nobody waits for ever, and a new process serves, also whom the old one had."""
    with Tapped("ucx") as t:
        c = t.cluster
        whole = t.ask()[1]["choices"][0]["message"]["content"]
        t.mangle(seldom(drop, 1))
        began, told = time.monotonic(), []
        asking = threading.Thread(target=lambda: told.append(t.ask()), daemon=True)
        asking.start()
        asking.join(5 * SCALE)
        t.mangle(None)
        os.kill(t.pids[2], 0)
        time.sleep(1)
        for name in ("a0", "a1"):
            log = os.path.join(c.folder, "state", "agents", name, "log")
            if c.agent(name)["state"] == "dead":
                with open(log, errors="replace") as said:
                    assert "libucs.so" in said.read(), name  # an assertion of UCX, and none of ours
                os.truncate(log, 0)
                c.hpctl("local", "start", "--agent", name)
        c.wait("it serves again", lambda: t.ask()[0] == 200, 40)
        assert t.ask()[1]["choices"][0]["message"]["content"] == whole
        asking.join(75 * SCALE - (time.monotonic() - began))
        assert told, "the request that was hit still waits"
        status, body = told[0]
        assert body["choices"][0]["message"]["content"] == whole if status == 200 else body["error"]["message"], (status, body)


@test
def a_path_on_which_all_is_lost_is_planned_around():
    """Both agents live, and the coordinator hears them."""
    with Tapped("tcp", "--copies", "2") as t:
        c = t.cluster
        c.wait("all is copied", lambda: all("copy_on" in s for s in c.hpctl("describe", "demo")["stages"]))
        status, body = t.ask()
        assert status == 200, body
        t.mangle(lambda got: b"")
        began = time.monotonic()
        status, again = t.ask()
        print(f"# {time.monotonic() - began:.1f} s")
        assert status == 200 and again["choices"][0]["message"]["content"] == body["choices"][0]["message"]["content"], again
        assert time.monotonic() - began < 15 * SCALE
        assert len({s["agent"] for s in c.hpctl("describe", "demo")["stages"]}) == 1
        t.alive()


main()
