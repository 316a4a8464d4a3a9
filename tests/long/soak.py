"""A cluster under mixed load and chaos for a while: soak.py SECONDS SEED. Agents and the coordinator are killed, stopped, slowed and kept from writing files, deployments come and go, clients hang up.

Every answer that ends well must be the one that an undisturbed run gives, every answer with an Idempotency-Key must end well, whoever dies meanwhile, none may stand still for long, and no request may hang. From a third of the time on the coordinator and a0 are
killed no more (the other agents are): at rest, in the end as then, each process has the memory, descriptors and threads that it had, and no sequence holds a block. Prints what happened and exits 1 when something did not hold."""
import collections
import json
import os
import random
import resource
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))
from cluster import DEMO, SCALE, Cluster, Failed
from resuming import Broken, Reader
from state import compare, rest

KEYED, PLAIN = 4, 2  # clients of either kind
LONGEST_PAUSE_MS = 30000  # between two tokens of a keyed answer: what lasts longest here is an agent that is away for 4 s
AGENTS = ("a0", "a1", "a2")
STORIES = [dict(model=model, prompt=prompt, temperature=heat, seed=7, ignore_eos=True, max_tokens=n)
           for model, prompt, heat, n in (("demo", "Tell me a story.", 0, 300), ("demo", "Once upon a time", 1.0, 200), ("free", "Once upon a time", 0, 200), ("free", "What is 11 * 7?" * 30, 0.8, 80))]

seconds, seed = float(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
counts, causes, lock = collections.Counter(), collections.Counter(), threading.Lock()
stop = threading.Event()


def count(what, why=None):
    with lock:
        counts[what] += 1
        if why:
            causes[f"{what}: {str(why)[:120]}"] += 1


def keyed_client(c, number, texts):
    """Reads answers to their ends, over as many connections as that takes."""
    own, asked = random.Random(seed * 1000 + number), 0
    while not stop.is_set():
        which, asked = own.randrange(len(STORIES)), asked + 1
        reader = Reader(c.port, STORIES[which], f"{seed}/{number}/{asked}", by_name=own.random() < 0.5)
        reader.join(240)
        if reader.is_alive():
            count("hung", STORIES[which])
        elif reader.failure:
            count("broken", repr(reader.failure))
        else:
            count("whole" if reader.text == texts[which] else "wrong")
        with lock:
            counts["longest_pause_ms"] = max(counts["longest_pause_ms"], int(reader.pause * 1000))
        stop.wait(own.uniform(0, 0.5))


def plain_request(c, own, texts):
    which = own.randrange(len(STORIES))
    if own.random() < 0.5:
        stream = c.stream("/v1/completions", STORIES[which], timeout=60)
        for i, _ in enumerate(stream.events()):
            if i >= own.randrange(60):
                break
        stream.close()
        return count("cancelled")
    status, body = c.request("POST", "/v1/completions", STORIES[which])
    if status != 200:
        return count("refused" if status in (429, 503) else "failed", body)
    return count("whole" if body["choices"][0]["text"] == texts[which] else "wrong")


def plain_client(c, number, texts):
    """Asks without a key: what is lost with its coordinator may fail, and says so."""
    own = random.Random(seed * 1000 + number)
    while not stop.is_set():
        try:
            plain_request(c, own, texts)
        except TimeoutError:
            count("hung", "a request without a key")
        except (OSError, ValueError, Broken) as e:
            count("failed", type(e).__name__)
        stop.wait(own.uniform(0, 0.5))


# ---- trouble ----

def pid_of(c, name):
    return c.local()["coordinator"]["pid"] if name == "coordinator" else c.agent(name)["pid"]


def start(c, name):
    """One that could not be started would be missing until the end: it is tried again, and told."""
    for _ in range(5):
        try:
            return c.hpctl("local", "start", *(["--coordinator"] if name == "coordinator" else ["--agent", name]), timeout=120)
        except Failed as e:
            if "is running" in e.message:
                return
            count("unstarted", e)


def kill(c, name):
    c.kill(name)
    time.sleep(chance.choice((0, 0, 1, 4)))
    start(c, name)


def halt(c, name):
    pid = pid_of(c, name)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(chance.uniform(0.5, 6))
    os.kill(pid, signal.SIGCONT)


def slow(c, name):
    pid, until = pid_of(c, name), time.monotonic() + chance.uniform(1, 6)
    while time.monotonic() < until:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.09)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)


def disk(c, name):
    pid = pid_of(c, name)
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    time.sleep(chance.uniform(1, 6))
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def third(c, _):
    c.hpctl("deploy", DEMO, "--name", "third", "--agents", "a1,a2", "--max-context", "512", "--upload", timeout=120)
    c.hpctl("undeploy", "third")


def rebalance(c, _):
    c.hpctl("rebalance", "free", "--margin", "0")


FAULTS = (kill, kill, halt, slow, disk, third, rebalance)


def trouble(c, until, spared):
    while time.monotonic() < until:
        time.sleep(chance.uniform(3, 10))
        fault, victim = chance.choice(FAULTS), chance.choice((*AGENTS, "coordinator"))
        if fault is kill and victim in spared:
            fault = halt
        try:
            fault(c, victim)
            count(fault.__name__)
        except (Failed, OSError, AssertionError) as e:  # what a verb says in the middle of trouble is no finding; that all serves again is asked below
            causes[f"{fault.__name__}: {str(e)[:120]}"] += 1


def heal(c):
    """All run, and both deployments serve, within a minute."""
    if c.local()["coordinator"]["state"] != "running":
        c.hpctl("local", "start", "--coordinator", timeout=120)
    for agent in c.local()["agents"]:
        if agent["state"] != "running":
            c.hpctl("local", "start", "--agent", agent["name"], timeout=120)
    c.take_away("third")
    for name in ("demo", "free"):
        c.wait_serving(name, 60)


def phase(c, until, spared, texts):
    """Clients ask and trouble comes until then; what everything has at rest afterwards, `demo` alone being deployed."""
    c.deploy("free", DEMO, "--compute", "f32", "--copies", "2", "--upload")
    if not texts:
        texts += [c.request("POST", "/v1/completions", story)[1]["choices"][0]["text"] for story in STORIES]
    stop.clear()
    clients = [threading.Thread(target=kind, args=(c, i, texts)) for i, kind in enumerate([keyed_client] * KEYED + [plain_client] * PLAIN)]
    for t in clients:
        t.start()
    trouble(c, until, spared)
    heal(c)
    stop.set()
    for t in clients:
        t.join()
    state = rest(c, ("demo", "free"), lambda: ask(c, texts))
    held = {name: n for name, (_, n, _) in state[1].items() if n}
    assert not held, f"blocks that nobody holds: {held}"
    c.hpctl("undeploy", "free")
    return rest(c, ("demo",), lambda: ask(c, texts[:2]))


def ask(c, texts):
    for story, text in zip(STORIES, texts):
        assert c.request("POST", "/v1/completions", story)[1]["choices"][0]["text"] == text, story


def shown(state):
    return {name: {"resident_mb": round(p["resident"] / 1e6, 1), "threads": p["threads"], "descriptors": p["descriptors"]} for name, p in state[0].items()}


def main():
    began, texts = time.monotonic(), []
    with Cluster(agents=3, cores=1, data=chance.choice(["ucx", "tcp"])) as c:
        c.deploy("demo", DEMO, "--layers", "0-5:a0,6-11:a1,12-17:a2", "--compute", "f32", "--upload")
        before = phase(c, began + seconds / 3, (), texts)
        print(json.dumps({"at_s": round(time.monotonic() - began), **counts, "rest": shown(before)}), flush=True)
        after = phase(c, began + seconds, ("coordinator", "a0"), texts)
    wrong = compare(before, after)
    for cause, n in causes.most_common(40):
        print(f"# {n} times {cause}")
    print(json.dumps({"seed": seed, "seconds": round(time.monotonic() - began), **counts, "before": shown(before), "after": shown(after), "blocks": after[1]}))
    assert not wrong, wrong
    assert counts["longest_pause_ms"] <= LONGEST_PAUSE_MS * SCALE, counts
    assert counts["whole"] > 0 and counts["wrong"] == counts["hung"] == counts["broken"] == counts["unstarted"] == 0, counts


main()
