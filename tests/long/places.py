"""Agents that leave and come under load, paced: places.py [SECONDS]. An agent is drained: no request fails, no token is another, and the 99th percentile of the steps is at most twice the one before. An agent joins: the
deployment takes it by itself (--rebalance auto), and 30 s later as many requests are answered as the new plan says, within 5 %.

SECONDS (20) is how long each rate and each step is measured. The last line sums it up; the exit status is 1 where something did not hold."""
import json
import os
import sys
import threading
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")]
from cluster import Cluster  # noqa: E402
from pacing import files, paced  # noqa: E402

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 20
JOINED_S, PART = 30, 0.05


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


class Clients:
    """Each asks as soon as it has its answer: (when, how long) of each step, when each answer was whole, texts by prompt, and failures."""

    def __init__(self, c, n, prompt_tokens, answer_tokens):
        self.c, self.prompt_tokens, self.answer_tokens = c, prompt_tokens, answer_tokens
        self.steps, self.ends, self.texts, self.failures = [], [], {}, []
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(n)]

    def ask(self, number):
        turn = number
        while not self.stopped.is_set():
            turn += len(self.threads)
            ids = [3 + (i * (number + 1) + turn) % 200 for i in range(self.prompt_tokens)]
            text, last, ended = "", None, False
            try:
                stream = self.c.stream("/v1/completions", {"model": "toy", "prompt": ids, "max_tokens": self.answer_tokens, "ignore_eos": True, "temperature": 0}, timeout=120)
                for event in stream.events():
                    ended = event is None
                    if event and "error" in event:
                        raise ValueError(event["error"])
                    if event and event.get("choices"):
                        now = time.monotonic()
                        if last:
                            self.steps.append((now, now - last))
                        text, last = text + event["choices"][0]["text"], now
                if not ended:
                    raise ValueError("it broke off")
            except (OSError, ValueError) as e:
                self.failures.append(str(e)[:200])
                continue
            self.ends.append(time.monotonic())
            if self.texts.setdefault(tuple(ids), text) != text:
                self.failures.append("another answer")

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for t in self.threads:
            t.join()


def steps_of(clients, begin, end):
    return [took for at, took in clients.steps if begin <= at < end]


def drain(f):
    """An agent that is used is emptied while answers run."""
    with Cluster(agents=3, pace=f["cluster.json"], profile=f["profile.json"]) as c:
        c.hpctl("deploy", f["toy.gguf"], "--name", "toy", "--max-context", "512", "--max-sequences", "8", "--prefix-cache", "off", "--agents", "one.gpu0,two.gpu0")
        with Clients(c, 4, 16, 200) as clients:
            c.wait("tokens come", lambda: len(clients.steps) > 40, 60)
            began = time.monotonic()
            time.sleep(SECONDS)
            at = time.monotonic()
            c.hpctl("node", "drain", "one.gpu0", timeout=120)
            c.wait("it has left", lambda: [d["name"] for d in c.hpctl("ps")] == ["toy"] and "one.gpu0" not in {s["agent"] for s in c.hpctl("describe", "toy")["stages"]}, 60)
            left = time.monotonic()
            time.sleep(max(0, SECONDS - (left - at)))
            end = time.monotonic()
        before, meanwhile, after = steps_of(clients, began, at), steps_of(clients, at, left + 1), steps_of(clients, at, end)
        return {"failed": len(clients.failures), "failures": clients.failures[:3], "normal_p99_s": percentile(before, 0.99), "moving_p99_s": percentile(meanwhile, 0.99), "drained_p99_s": percentile(after, 0.99),
                "longest_s": max(after), "normal_longest_s": max(before), "moved_in_s": left - at, "steps": len(before) + len(after)}


def arrival(f):
    """The fastest agent comes while answers run, of the lengths that the planner counts with."""
    with paced(f) as c:
        c.kill("two.gpu0")
        c.wait("it is lost", lambda: c.member("two.gpu0") == "lost")
        c.hpctl("deploy", f["toy.gguf"], "--name", "toy", "--max-context", "1024", "--max-sequences", "8", "--prefix-cache", "off", "--rebalance", "auto")
        counted = c.hpctl("rebalance", "toy", "--dry-run", "--margin", "0")
        prompt, answer = int(counted["prompt_tokens"]), int(counted["answer_tokens"])
        with Clients(c, 16, prompt, answer) as clients:
            c.wait("tokens come", lambda: len(clients.steps) > 200, 120)
            c.hpctl("local", "start", "--agent", "two.gpu0", timeout=60)
            joined = time.monotonic()
            c.wait("it is used", lambda: "two.gpu0" in {s["agent"] for s in c.hpctl("describe", "toy")["stages"]}, 60)
            used_s = time.monotonic() - joined
            time.sleep(max(0, JOINED_S - used_s))
            began = time.monotonic()
            time.sleep(SECONDS)
            end = time.monotonic()
        told = c.hpctl("describe", "toy")["rebalance"]
        rate = len([at for at in clients.ends if began <= at < end]) / (end - began)
        by_tokens = len(steps_of(clients, began, end)) / (answer - 1) / (end - began)
        return {"failed": len(clients.failures), "failures": clients.failures[:3], "used_after_s": used_s, "before": told["before"]["requests_per_s"], "planned": told["after"]["requests_per_s"], "measured": by_tokens,
                "answers_per_s": rate, "prompt": prompt, "answer": answer}


def main():
    only = sys.argv[2:] or ["drain", "arrival"]
    with files() as f:
        for part in only:
            print(json.dumps({part: globals()[part](f)}), flush=True)


main()
