"""A cluster under mixed load for a while, with kills: soak.py SECONDS SEED. Every request must end, every answer that ends well must be the known one, no process may take more than 200 MB.

Prints what happened and exits 1 when something did not hold."""
import json
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))
from cluster import DEMO, Cluster

seconds, seed = float(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
done = {"answered": 0, "refused": 0, "failed": 0, "cancelled": 0, "wrong": 0, "hung": 0, "killed": 0, "deployed": 0}
lock = threading.Lock()
until = time.monotonic() + seconds
KNOWN = {"What is the capital of Cuba?": "Havana", "What is 11 * 7?": "77"}


def count(what):
    with lock:
        done[what] += 1


def client(c, number):
    own = random.Random(seed * 1000 + number)
    while time.monotonic() < until:
        question = own.choice(list(KNOWN))
        try:
            if own.random() < 0.2:
                stream = c.stream("/v1/completions", {"model": "demo", "prompt": "Once upon a time" * own.choice((1, 40)), "max_tokens": 200, "ignore_eos": True}, timeout=60)
                for i, _ in enumerate(stream.events()):
                    if i == own.randrange(30):
                        break
                stream.close()
                count("cancelled")
                continue
            status, body = c.chat("demo", question)
            if status != 200:
                count("refused" if status in (429, 503) else "failed")
                time.sleep(0.2)
            elif KNOWN[question] in body["choices"][0]["message"]["content"]:
                count("answered")
            else:
                count("wrong")
                print("# wrong:", question, body, flush=True)
        except TimeoutError:
            count("hung")
        except (OSError, ValueError):
            count("failed")
            time.sleep(0.2)


def trouble(c):
    while time.monotonic() < until - 30:
        time.sleep(chance.uniform(5, 15))
        victim = chance.choice(["a0", "a1", "a2", "coordinator", "stop", "second"])
        try:
            if victim == "second":
                c.hpctl("deploy", DEMO, "--name", "second", "--upload", timeout=120)
                c.hpctl("undeploy", "second")
                count("deployed")
            elif victim == "stop":
                pid = c.kill(chance.choice(["a0", "a1", "a2", "coordinator"]), signal.SIGSTOP)
                time.sleep(chance.uniform(0.5, 6))
                os.kill(pid, signal.SIGCONT)
            else:
                c.kill(victim)
                count("killed")
                c.hpctl("local", "start", *(["--coordinator"] if victim == "coordinator" else ["--agent", victim]), timeout=120)
        except Exception as e:  # what a verb says in the middle of trouble is no finding; that all serves again is asked below
            print("# trouble:", type(e).__name__, str(e)[:200], flush=True)


def memory(c):
    state, out = c.local(), {}
    for name, pid in [("coordinator", state["coordinator"]["pid"])] + [(a["name"], a["pid"]) for a in state["agents"]]:
        with open(f"/proc/{pid}/statm") as f:
            out[name] = int(f.read().split()[1]) * 4096
    return out


with Cluster(agents=3, cores=1, data=chance.choice(["ucx", "tcp"])) as c:
    c.deploy("demo", DEMO, "--agents", "a0,a1,a2")
    threads = [threading.Thread(target=client, args=(c, i)) for i in range(4)]
    for t in threads:
        t.start()
    trouble(c)
    for t in threads:
        t.join()
    for agent in c.local()["agents"]:
        if agent["state"] != "running":
            c.hpctl("local", "start", "--agent", agent["name"])
    c.wait_serving("demo", 120)
    assert "Havana" in c.answer("demo", "What is the capital of Cuba?")
    after = memory(c)
print(json.dumps({"seed": seed, "seconds": seconds, **done, "resident_mb": {k: round(v / 1e6) for k, v in after.items()}}))
assert done["answered"] > 0 and done["wrong"] == 0 and done["hung"] == 0, done
assert max(after.values()) < 200e6, after
