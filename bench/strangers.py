"""What strangers cost: the latency of a good client while 10 000 connections are aimed at every port of a cluster, beside the same load aimed at idle listeners on the
same cores: as many processes with as many ports, which accept, hold at most 32 a port and close the oldest, and do nothing else. Rounds of both in turn. Each connection
sends garbage (77 bytes that look like UCX, or as many of noise), is held a while, and never proves anything. What a stranger costs the processes is said beside it.

    python3 bench/strangers.py [--connections 10000] [--rounds 5] [--data ucx|tcp]"""
import argparse
import multiprocessing
import os
import random
import re
import select
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


def listener(ports, ready):
    """One process of ours, idle: accepts at its ports, and forgets."""
    doors, poll = {}, select.epoll()
    for i in range(len(ports)):
        door = socket.create_server(("127.0.0.1", 0), backlog=1024)
        door.setblocking(False)
        ports[i] = door.getsockname()[1]
        doors[door.fileno()] = (door, [])
        poll.register(door, select.EPOLLIN)
    ready.set()
    while True:
        for fd, _ in poll.poll():
            door, held = doors[fd]
            try:
                held.append(door.accept()[0])
            except OSError:
                continue
            if len(held) > 32:
                held.pop(0).close()


def idle_listeners(counts):
    """One for each process of ours; their processes, and the ports of all."""
    processes, ports = [], []
    for n in counts:
        own, ready = multiprocessing.Array("i", n), multiprocessing.Event()
        processes.append(multiprocessing.Process(target=listener, args=(own, ready), daemon=True))
        processes[-1].start()
        ready.wait()
        ports += list(own)
    return processes, ports


def cpu_s(pids):
    """Seconds of a core that all threads of these processes have had."""
    spent_ns = 0
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            spent_ns += int(open(f"/proc/{pid}/task/{thread}/schedstat").read().split()[0])
    return spent_ns * 1e-9


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


def ports_of(pid):
    """The ports at which a process listens."""
    inodes, ports = set(), set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue
        if found:
            inodes.add(found.group(1))
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in open(table).readlines()[1:]:
            field = line.split()
            if field[3] == "0A" and field[9] in inodes:
                ports.add(int(field[1].split(":")[1], 16))
    return sorted(ports)


def cost_us(pids, ports):
    """Microseconds of a core that one stranger costs, while nobody asks anything."""
    time.sleep(2)
    before, started = cpu_s(pids), time.monotonic()
    time.sleep(2)
    idle = (cpu_s(pids) - before) / (time.monotonic() - started)
    done, n = multiprocessing.Event(), options.connections // 2
    before, started = cpu_s(pids), time.monotonic()
    crowd(ports, n, done)
    return (cpu_s(pids) - before - idle * (time.monotonic() - started)) / n * 1e6


with Cluster(agents=2, cores=1, data=options.data) as c:
    c.deploy("demo", DEMO, "--agents", "a0,a1")
    state = c.local()
    pids = [state["coordinator"]["pid"]] + [a["pid"] for a in state["agents"]]
    ours = [ports_of(pid) for pid in pids]
    idle, theirs = idle_listeners([len(ports) for ports in ours])
    ours = sorted(sum(ours, []))
    alone = latencies(c, iter([True] * 300 + [False]).__next__)
    ratios = {0.5: [], 0.99: []}
    for round in range(options.rounds):
        there, there_s = under_load(c, theirs)
        here, here_s = under_load(c, ours)
        for q in ratios:
            ratios[q].append(quantile(here, q) / quantile(there, q))
        print(f"  round {round + 1}: at idle listeners p50 {quantile(there, .5) * 1e3:.1f} p99 {quantile(there, .99) * 1e3:.1f} ms ({len(there)} answers, {there_s:.1f} s); "
              f"at {len(ours)} ports of ours p50 {quantile(here, .5) * 1e3:.1f} p99 {quantile(here, .99) * 1e3:.1f} ms ({len(here)} answers, {here_s:.1f} s)", flush=True)
    costs = cost_us([p.pid for p in idle], theirs), cost_us(pids, ours)
    print(f"strangers, {options.data}: {options.connections} connections; alone p50 {quantile(alone, .5) * 1e3:.1f} p99 {quantile(alone, .99) * 1e3:.1f} ms; "
          f"at our ports over at idle listeners, medians of {options.rounds}: p50 {statistics.median(ratios[.5]):.2f}, p99 {statistics.median(ratios[.99]):.2f}; "
          f"a stranger costs {costs[1]:.0f} us of a core, idle listeners {costs[0]:.0f}; load {os.getloadavg()[0]:.1f}")
