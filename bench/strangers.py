"""What strangers cost: the latency of a good client while 10 000 connections are aimed at every port of a cluster, beside the same load aimed at an idle listener
on the same cores. Each connection sends garbage (77 bytes that look like UCX, or as many of noise), is held a while, and never proves anything.

    python3 bench/strangers.py [--connections 10000] [--rounds 5] [--data ucx|tcp]"""
import argparse
import multiprocessing
import os
import random
import re
import socket
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "proc"))
from cluster import DEMO, Cluster

options = argparse.ArgumentParser()
options.add_argument("--connections", type=int, default=10000)
options.add_argument("--rounds", type=int, default=5)
options.add_argument("--data", default="tcp")
options = options.parse_args()


def listener(port, ready):
    """Accepts, and forgets: what a listener costs that does nothing."""
    held = []
    s = socket.create_server(("127.0.0.1", 0), backlog=1024)
    port.value = s.getsockname()[1]
    ready.set()
    while True:
        held.append((s.accept()[0], time.monotonic()))
        while held and time.monotonic() - held[0][1] > 1:
            held.pop(0)[0].close()


def crowd(ports, n, done):
    """n connections over the ports in turn, 400 at once, each held for a second or until it is refused."""
    chance, open_ones = random.Random(1), []
    for i in range(n):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(("127.0.0.1", ports[i % len(ports)]))
        open_ones.append((s, time.monotonic()))
        if i % 3 == 0 and i >= 3:
            try:
                open_ones[-3][0].send(chance.randbytes(77))
            except OSError:
                pass
        while len(open_ones) >= 400:
            s, since = open_ones.pop(0)
            wait = since + 0.5 - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            s.close()
    for s, _ in open_ones:
        s.close()
    done.set()


def latencies(c, while_true):
    out = []
    while while_true():
        started = time.monotonic()
        assert "Havana" in c.answer("demo", "What is the capital of Cuba?")
        out.append(time.monotonic() - started)
    return out


def under_load(c, ports):
    done = multiprocessing.Event()
    load = multiprocessing.Process(target=crowd, args=(ports, options.connections, done))
    load.start()
    started = time.monotonic()
    got = latencies(c, lambda: not done.is_set())
    load.join()
    return got, time.monotonic() - started


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def ports_of(c):
    """Every port of ours that listens."""
    state = c.local()
    pids = [state["coordinator"]["pid"]] + [a["pid"] for a in state["agents"]]
    inodes = set()
    for pid in pids:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                found = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}"))
            except OSError:
                continue
            if found:
                inodes.add(found.group(1))
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in open(table).readlines()[1:]:
            field = line.split()
            if field[3] == "0A" and field[9] in inodes:
                ports.add(int(field[1].split(":")[1], 16))
    return sorted(ports)


with Cluster(agents=2, cores=1, data=options.data) as c:
    c.deploy("demo", DEMO, "--agents", "a0,a1")
    port, ready = multiprocessing.Value("i", 0), multiprocessing.Event()
    idle = multiprocessing.Process(target=listener, args=(port, ready), daemon=True)
    idle.start()
    ready.wait()
    ours = ports_of(c)
    alone = latencies(c, iter([True] * 300 + [False]).__next__)
    ratios = {0.5: [], 0.99: []}
    for round in range(options.rounds):
        there, there_s = under_load(c, [port.value])
        here, here_s = under_load(c, ours)
        for q in ratios:
            ratios[q].append(quantile(here, q) / quantile(there, q))
        print(f"  round {round + 1}: at an idle listener p50 {quantile(there, .5) * 1e3:.1f} p99 {quantile(there, .99) * 1e3:.1f} ms ({len(there)} answers, {there_s:.1f} s); "
              f"at {len(ours)} ports of ours p50 {quantile(here, .5) * 1e3:.1f} p99 {quantile(here, .99) * 1e3:.1f} ms ({len(here)} answers, {here_s:.1f} s)", flush=True)
    idle.kill()
    print(f"strangers, {options.data}: {options.connections} connections; alone p50 {quantile(alone, .5) * 1e3:.1f} p99 {quantile(alone, .99) * 1e3:.1f} ms; "
          f"at our ports over at an idle listener, medians of {options.rounds}: p50 {statistics.median(ratios[.5]):.2f}, p99 {statistics.median(ratios[.99]):.2f}")
