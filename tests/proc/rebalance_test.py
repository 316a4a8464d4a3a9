"""A deployment that serves goes to a better place (`hpctl rebalance`): real agents, streams that go on."""
import os
import random
import signal
import subprocess
import sys
import threading
import time

from cluster import ROOT, SCALE, Cluster, DEMO, Failed, read_on
from pacing import BLOCKS, EQUALS, files, paced
from tap import main, test

TOKENS = 100


def complete(c, model, ids, **more):
    return c.request("POST", "/v1/completions", dict({"model": model, "prompt": ids, "temperature": 0, "ignore_eos": True}, **more))[1]


def dry(c):
    return c.hpctl("rebalance", "demo", "--dry-run", "--margin", "0")


@test
def streams_go_on_while_agents_that_came_are_used():
    """Paced, so that what a move gains is a matter of the devices that agents stand for and not of this box's load."""
    with files(EQUALS) as f, paced(f) as c:
        first, *others = [m["name"] for m in c.hpctl("node", "ls")]
        c.deploy("plain", f["toy.gguf"], "--agents", first, "--compute", "f32", "--prefix-cache", "off")
        asked = [[5 + (i * k) % 90 for i in range(200)] for k in (1, 3, 7)]
        right = [complete(c, "plain", ids, max_tokens=TOKENS)["choices"][0]["text"] for ids in asked]
        c.hpctl("undeploy", "plain")
        for name in others:
            c.hpctl("node", "drain", name)
        c.deploy("demo", f["toy.gguf"], "--compute", "f32", "--speculate", "off", "--max-context", "512", "--max-sequences", "4")
        assert dry(c)["verdict"] == "stays", "alone it lies where it would"
        for name in others:
            c.hpctl("node", "undrain", name)
        c.wait("a move pays", lambda: dry(c)["verdict"] == "would_move")
        assert {s["agent"] for s in c.hpctl("describe", "demo")["stages"]} == {first}
        streams = [c.stream("/v1/completions", {"model": "demo", "prompt": ids, "temperature": 0, "ignore_eos": True, "max_tokens": TOKENS}) for ids in asked]
        events = [s.events() for s in streams]
        texts = ["".join(next(e)["choices"][0]["text"] for _ in range(5)) for e in events]
        report = c.hpctl("rebalance", "demo", "--margin", "0")
        assert report["verdict"] == "moved", report
        assert report["before"]["stages"] != report["after"]["stages"] and report["done"]["failed"] == 0, report
        longest = read_on(events, texts)
        assert report["done"]["moved"] == len(asked), report["done"]
        assert texts == right, [(len(a), len(b)) for a, b in zip(texts, right)]
        print(f"# {report['done']['moved']} streams moved in {report['done']['took_s']:.3f} s, longest pause {longest:.3f} s")
        described = c.hpctl("describe", "demo")
        assert [s["on"] for s in described["stages"]] == [s["on"] for s in report["after"]["stages"]], described
        assert described["rebalance"]["verdict"] == "moved", described["rebalance"]
        assert "went over while they ran" in c.run("describe", "demo").stdout
        # Of all deployments: a list, and what cannot move is a row of it.
        c.deploy("fixed", f["toy.gguf"], "--layers", f"0-{2 * BLOCKS + 1}:{first}")
        rows = {r["deployment"]: r for r in c.hpctl("rebalance", "--dry-run", "--margin", "100")}
        assert rows["demo"]["verdict"] == "stays" and "by hand" in rows["fixed"]["why"], rows
        try:
            c.hpctl("rebalance", "fixed")
            raise AssertionError("it was placed by hand")
        except Failed as e:
            assert e.rc == 6 and "by hand" in e.message, e


class Slowed:
    """An agent that runs a tenth of the time, or of what processes get on a box that is busy with others."""

    def __init__(self, pid):
        self.pid, self.ends = pid, threading.Event()
        self.stands_s = 0.002 * (10 * min(max(1, os.getloadavg()[0] / os.cpu_count()), 6) - 1)
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ends.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(self.stands_s)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.002)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()


@test
def an_agent_that_became_slow_is_named_and_left():
    """By whoever asks for it, where it was put there by name."""
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--speculate", "off", "--prefix-cache", "off")

        def layers(stages):
            return {s["on"]: s["last_layer"] - s["first_layer"] + 1 for s in stages}

        stages = c.hpctl("describe", "demo")["stages"]
        assert set(layers(stages)) == {"a0", "a1"}, stages
        draw, right = random.Random(1), complete(c, "demo", list(range(5, 85)), max_tokens=8)["choices"][0]["text"]

        def after_prompt(look):
            complete(c, "demo", [draw.randrange(5, 95) for _ in range(1000)], max_tokens=1)  # much more than it runs at a time
            return look()

        def pace():
            return {s["agent"]: s["pace"] for s in c.hpctl("describe", "demo")["stages"]}.get("a1", 0)

        with Slowed(c.agent("a1")["pid"]):
            began = time.monotonic()
            c.wait("a1 is found to be slow", lambda: after_prompt(lambda: pace() > 2.5), 60)
            print(f"# named after {time.monotonic() - began:.1f} s; load {os.getloadavg()[0]:.0f}")
            assert "times as long" in c.run("describe", "demo").stdout
            c.wait("it is known how slow", lambda: after_prompt(lambda: dry(c)["gain"] > 0.25), 60)
            report = c.hpctl("rebalance", "demo", "--margin", "0")
            assert report["verdict"] == "moved" and layers(report["after"]["stages"]).get("a1", 0) < layers(stages)["a1"], report
        assert complete(c, "demo", list(range(5, 85)), max_tokens=8)["choices"][0]["text"] == right


@test
def an_agent_that_became_slow_is_left_by_itself_within_30_s():
    """Of two unlike ones, as most boxes are: each is the only one of its kind."""
    with Cluster(agents=2, cores=1, device="a1=cpu:any:1,threads=2") as c:
        c.deploy("demo", DEMO, "--compute", "f32", "--speculate", "off", "--prefix-cache", "off")
        before = c.hpctl("describe", "demo")
        assert before["rebalances"] == "degraded", before["rebalances"]
        draw, right = random.Random(2), complete(c, "demo", list(range(5, 85)), max_tokens=8)["choices"][0]["text"]
        slow = before["stages"][0]["agent"]

        def layers():
            """Of the slow one, after another prompt."""
            complete(c, "demo", [draw.randrange(5, 95) for _ in range(400)], max_tokens=1)
            d = c.hpctl("describe", "demo")
            return sum(s["last_layer"] - s["first_layer"] + 1 for s in d["stages"] if s["agent"] == slow) if d["state"] == "serving" else 99

        had = layers()
        with Slowed(c.agent(slow)["pid"]):
            began = time.monotonic()
            c.wait("it has less to do, or nothing", lambda: layers() < had, 40)
            took = time.monotonic() - began
            print(f"# serves elsewhere {took:.1f} s after it became slow; load {os.getloadavg()[0]:.0f}")
            assert took <= 30 * SCALE, took
        c.wait("it says so", lambda: c.hpctl("describe", "demo").get("rebalance", {}).get("verdict") == "moved")
        assert complete(c, "demo", list(range(5, 85)), max_tokens=8)["choices"][0]["text"] == right


@test
def an_agent_that_became_slow_is_named_while_a_long_prompt_goes_on():
    """It says itself what the prompt took so far: nobody waits for the end."""
    with Cluster(agents=2, cores=1, device="a1=cpu:any:1,threads=2", memory="600MB") as c:
        model = os.path.join(c.folder, "long.gguf")
        shape = "--type q8_0 --blocks 12 --width 512 --heads 8 --kv-heads 2 --mlp 1536 --vocabulary 2000 --context 16384"
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "make_random_model.py"), model, *shape.split()], check=True, stdout=subprocess.DEVNULL)
        c.deploy("long", model, "--agents", "a0,a1", "--max-context", "16384", "--max-sequences", "1", "--prefix-cache", "off", "--rebalance", "off")
        draw = random.Random(3)

        def ask(tokens):
            began = time.monotonic()
            rc, answer = c.request("POST", "/v1/completions", {"model": "long", "prompt": [draw.randrange(300, 1900) for _ in range(tokens)], "max_tokens": 1, "ignore_eos": True}, timeout=300)[:2]
            assert rc == 200, answer
            return time.monotonic() - began

        tokens = 1000
        while ask(tokens) < 3 and tokens < 16000:
            tokens *= 2
        slow = c.hpctl("describe", "long")["stages"][0]["agent"]
        asks = threading.Thread(target=ask, args=(tokens,))
        with Slowed(c.agent(slow)["pid"]):
            began = time.monotonic()
            asks.start()
            c.wait("it is named", lambda: {s["agent"]: s["pace"] for s in c.hpctl("describe", "long")["stages"]}[slow] > 2.5, 60)
            assert asks.is_alive() and c.hpctl("describe", "long")["sequences_active"] == 1, "the prompt is over"
            print(f"# named {time.monotonic() - began:.1f} s after a prompt of {tokens} tokens began; load {os.getloadavg()[0]:.0f}")
        asks.join()


main()
