"""Agents that leave and come under load, paced: places.py [SECONDS [PART ...]]. An agent is drained: no request fails, no token is another, and the 99th percentile of the steps is at most twice the one before. An agent joins: the
deployment takes it by itself (--rebalance auto), and 30 s later as many prompts are read a second as the new plan says, within 5 %; with more clients, whose slices run together, no fewer than that.

SECONDS (20) is how long each rate and each step is measured. The last line sums it up; the exit status is 1 where something did not hold."""
import json
import os
import sys
import threading
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")]
from pacing import files, paced  # noqa: E402

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 20
JOINED_S, PART, CROWD = 30, 0.05, 8


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
    with paced(f) as c:
        c.hpctl("deploy", f["toy.gguf"], "--name", "toy", "--max-context", "512", "--max-sequences", "8", "--prefix-cache", "off")
        used = sorted({s["agent"] for s in c.hpctl("describe", "toy")["stages"]})
        with Clients(c, 4, 16, 200) as clients:
            c.wait("tokens come", lambda: len(clients.steps) > 40, 60)
            began = time.monotonic()
            time.sleep(SECONDS)
            at = time.monotonic()
            c.hpctl("node", "drain", used[0], timeout=120)
            c.wait("it has left", lambda: [d["name"] for d in c.hpctl("ps")] == ["toy"] and used[0] not in {s["agent"] for s in c.hpctl("describe", "toy")["stages"]}, 60)
            left = time.monotonic()
            time.sleep(max(0, SECONDS - (left - at)))
            end = time.monotonic()
        stages = sorted({s["agent"] for s in c.hpctl("describe", "toy")["stages"]})
        before, meanwhile, after = steps_of(clients, began, at), steps_of(clients, at, left + 1), steps_of(clients, at, end)
        return {"from": used, "to": stages, "failed": len(clients.failures), "failures": clients.failures[:3], "normal_p99_s": percentile(before, 0.99), "moving_p99_s": percentile(meanwhile, 0.99), "drained_p99_s": percentile(after, 0.99),
                "longest_s": max(after), "normal_longest_s": max(before), "moved_in_s": left - at, "steps": len(before) + len(after)}


def roomy(path):
    """Devices that have room for two places beside each other."""
    with open(path) as f:
        cluster = json.load(f)
    for node in cluster["nodes"]:
        for device in node["devices"]:
            device["memory_bytes"] = 8e9
    with open(path, "w") as f:
        json.dump(cluster, f)


def planned_rate(c, f, tokens):
    """Prompts a second of the place where the deployment is, by the planner, in the slices that its prompts took."""
    told = c.hpctl("describe", "toy")
    stages = [{"device": s["agent"].replace(".", "/"), "layers": [s["first_layer"], s["last_layer"] + 1]} for s in told["stages"]]
    slices = next(r["slices"] for r in told["prefill"]["records"] if r["tokens"] == tokens)
    with open(f["plan.json"], "w") as out:
        json.dump({"format": "hp-plan/1", "kind": "pipeline", "slices": slices, "stages": stages}, out)
    report = c.hpctl("plan", "check", f["plan.json"], "--cluster", f["cluster.json"], "--profile", f["profile.json"], "--tokens", str(tokens))
    return report["prompts_per_s"], stages, slices


def rate_of(clients):
    """Answers a second, for SECONDS from now on."""
    began = time.monotonic()
    time.sleep(SECONDS)
    ends = sorted(at for at in clients.ends if began <= at)
    return (len(ends) - 1) / (ends[-1] - ends[0])


def arrival(f):
    """The fastest agent comes while prompts are read, and is taken. Two clients: a prompt runs behind another, as the planner counts; of more, slices run together, which takes less time than it says."""
    roomy(f["cluster.json"])
    tokens = 384
    with paced(f) as c:
        c.kill("two.gpu0")
        c.wait("it is lost", lambda: c.member("two.gpu0") == "lost")
        c.hpctl("deploy", f["toy.gguf"], "--name", "toy", "--max-context", "512", "--max-sequences", "8", "--prefix-cache", "off", "--rebalance", "auto")
        with Clients(c, 2, tokens, 1) as clients:
            c.wait("answers come", lambda: len(clients.ends) > 8, 120)
            before = planned_rate(c, f, tokens)[0]
            c.hpctl("local", "start", "--agent", "two.gpu0", timeout=60)
            joined = time.monotonic()
            c.wait("it is used", lambda: "two.gpu0" in {s["agent"] for s in c.hpctl("describe", "toy")["stages"]}, 60)
            used_s = time.monotonic() - joined
            time.sleep(max(0, JOINED_S - used_s))
            measured = rate_of(clients)
            planned, stages, slices = planned_rate(c, f, tokens)
        with Clients(c, CROWD, tokens, 1) as crowd:
            c.wait("all have had an answer", lambda: len(crowd.ends) > CROWD, 60)
            crowded = rate_of(crowd)
        failures = clients.failures + crowd.failures
        return {"failed": len(failures), "failures": failures[:3], "used_after_s": used_s, "before_per_s": before, "planned_per_s": planned,
                "measured_per_s": measured, "crowd_per_s": crowded, "stages": [(s["device"], s["layers"]) for s in stages], "slices": slices}


def drain_holds(r):
    return r["failed"] == 0 and r["moving_p99_s"] <= 2 * r["normal_p99_s"]


def arrival_holds(r):
    return r["failed"] == 0 and r["used_after_s"] <= JOINED_S and abs(r["measured_per_s"] / r["planned_per_s"] - 1) <= PART and r["crowd_per_s"] >= (1 - PART) * r["planned_per_s"]


def main():
    only, told = sys.argv[2:] or ["drain", "arrival"], {}
    with files() as f:
        for part in only:
            told[part] = globals()[part](f)
    print(json.dumps(told))
    return 0 if all(globals()[part + "_holds"](r) for part, r in told.items()) else 1


sys.exit(main())
