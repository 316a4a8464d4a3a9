"""Random load for a while: load.py SECONDS SEED. Two deployments on the same three agents, by `hpctl load` with arrivals, rates, lengths and common beginnings that are drawn, up to far beyond what they can
do, some of it interrupted, with a third deployment that comes and goes. Every request must end as something that is told; answers that are known must come; and at rest, at the end as after the first rounds,
each process has the memory, descriptors and threads that it had, and no sequence holds a block.

Prints what happened and exits 1 when something did not hold."""
import json
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))
from cluster import BUILD, DEMO, Cluster
from state import compare, rest

WARM_ROUNDS = 5  # caches, pools and buffers of the size that they keep; before them the most that any round may ask for
HEAVIEST = ("--arrivals", "bursty", "--rate", "450", "--seconds", "6", "--prompt-tokens", "900", "--answer-tokens", "1..40", "--patience", "60")
NAMES = ("demo", "second")
QUESTION, ANSWER = "What is the capital of Cuba?", "Havana"
OUTCOMES = ("done", "refused", "failed", "open", "unsent")

seconds, seed = float(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
counts = dict.fromkeys((*OUTCOMES, "requests", "interrupted", "rounds", "deployed", "cached_tokens", "answer_tokens"), 0)
causes = {}


def options_drawn(name):
    """A load that lasts some seconds."""
    longest = chance.choice((40, 200, 900))
    return [name, "--arrivals", chance.choice(("poisson", "uniform", "bursty")), "--rate", f"{chance.choice((1, 4, 16, 80, 300)) * chance.uniform(0.5, 1.5):.2f}",
            "--seconds", f"{chance.uniform(1, 6):.2f}", "--prompt-tokens", chance.choice((f"1..{longest}", f"lognormal:4..{longest}")), "--answer-tokens", chance.choice(("1", "1..40", "lognormal:4..200")),
            "--common", str(chance.choice((0, 0, 64, 256))), "--patience", str(chance.choice((1, 60, 60))), "--max-open", str(chance.choice((4, 4096, 4096))), "--seed", str(chance.randrange(1, 1 << 30))]


def load_start(c, options):
    return subprocess.Popen([os.path.join(BUILD, "hpctl"), "load", *options, "-o", "json"], env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def load_end(process):
    out, said = process.communicate(timeout=400)
    if process.returncode in (-signal.SIGINT, 130):  # before it had sent anything
        counts["interrupted"] += 1
        return
    report = json.loads(out)
    if process.returncode == 1 and "give none in" in report["error"]["message"]:  # a low rate, and not one request
        return
    assert process.returncode == 0, (process.args, out, said)
    assert sum(report[o] for o in OUTCOMES) == report["requests"], report
    for key in (*OUTCOMES, "requests", "interrupted", "cached_tokens", "answer_tokens"):
        counts[key] += int(report[key])
    for cause in report["causes"]:
        told = causes.setdefault(cause["cause"], {"count": 0, "first": cause["message"]})
        told["count"] += cause["count"]


def load_round(c):
    loads = [load_start(c, options_drawn(name)) for name in chance.sample(("demo", "second", "demo", "second"), chance.randrange(1, 4))]
    if chance.random() < 0.3:
        time.sleep(chance.uniform(0.2, 2))
        loads[0].send_signal(signal.SIGINT)
    if chance.random() < 0.2:
        c.hpctl("deploy", DEMO, "--name", "third", "--agents", "a1,a2", "--max-context", "512", timeout=300)
        c.hpctl("undeploy", "third", timeout=300)
        counts["deployed"] += 1
    for one in loads:
        load_end(one)
    counts["rounds"] += 1


def ask(c):
    assert ANSWER in c.answer("demo", QUESTION) and ANSWER in c.answer("second", QUESTION)


with Cluster(agents=3, cores=1, data=chance.choice(["ucx", "tcp"])) as c:
    c.deploy("demo", DEMO, "--agents", "a0,a1,a2")
    c.deploy("second", DEMO, "--agents", "a2,a0", "--max-context", "1200")
    for one in [load_start(c, (name, *HEAVIEST)) for name in ("demo", "second", "demo")]:
        load_end(one)
    for _ in range(WARM_ROUNDS):
        load_round(c)
    before = rest(c, NAMES, lambda: ask(c))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        load_round(c)
    after = rest(c, NAMES, lambda: ask(c))
    wrong = compare(before, after)
print(json.dumps({"seed": seed, "seconds": seconds, **counts, "causes": causes, "before": before[0], "after": after[0], "blocks": after[1]}))
assert not wrong, wrong
assert counts["done"] > 0 and counts["rounds"] > WARM_ROUNDS, counts
