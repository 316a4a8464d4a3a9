"""What the processes of a cluster have: memory, descriptors, threads, and blocks of their KV caches; and whether they have as much later."""
import os
import time

GROWTH, GROWTH_BYTES = 1.1, 16 << 20
COUNTED = ("threads", "descriptors")


def process_state(pid):
    with open(f"/proc/{pid}/status") as f:
        status = dict(line.split(":", 1) for line in f)
    return {"resident": int(status["VmRSS"].split()[0]) * 1024, "threads": int(status["Threads"]), "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


def processes(c):
    state = c.local()
    return {name: process_state(pid) for name, pid in [("coordinator", state["coordinator"]["pid"])] + [(a["name"], a["pid"]) for a in state["agents"]]}


def blocks(c, names):
    """Of each deployment: all, those that sequences hold, and those that are kept."""
    told = {name: c.hpctl("describe", name)["prefix_cache"] for name in names}
    return {name: (p["pages"], p["pages_own"] + p["pages_shared"], p["pages_cached"]) for name, p in told.items()}


def is_resting(c, names):
    return all(c.hpctl("describe", name)[key] == 0 for name in names for key in ("sequences_active", "sequences_waiting"))


def rest(c, names, ask):
    """What everything has when nothing runs, once kept connections have ended (75 s) and `ask` was answered once more."""
    c.wait("all requests have ended", lambda: is_resting(c, names), 120)
    last = None
    for _ in range(20):
        now = processes(c)
        if last and all(now[p][k] == last[p][k] for p in now for k in COUNTED):
            break
        last = now
        time.sleep(5)
    ask()
    c.wait("these have ended", lambda: is_resting(c, names), 20)
    return processes(c), blocks(c, names)


def compare(before, after):
    """What is more than it was, in words."""
    wrong = []
    for name, then in before[0].items():
        now = after[0][name]
        if now["resident"] > then["resident"] * GROWTH + GROWTH_BYTES:
            wrong.append(f"{name} grew from {then['resident']} to {now['resident']} bytes")
        wrong += [f"{name} had {then[key]} {key}, and has {now[key]}" for key in COUNTED if now[key] > then[key] + 1]
    for name, (pages, held, cached) in after[1].items():
        if pages != before[1][name][0] or held != 0 or cached > pages:
            wrong.append(f"{name}: {held} of {pages} blocks are held by nobody, {cached} kept; before: {before[1][name]}")
    return wrong
