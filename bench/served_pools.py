#!/usr/bin/env python3
"""Pools that serve: what a request costs the coordinator, and a cluster of the paper's kinds beside the simulator.

    bench/served_pools.py [overhead|cluster|migration|pauses ...] [--rates 500,1000,2000,5000] [--seconds 10] [--stretch 1] [--profiles convnext,...] [--repeat 3]

overhead: infer requests of small tensors (64 bytes as binary data) through one coordinator, all threads of which are held on one core, to one paced agent, at
rising rates: processor time of the coordinator and of `hpctl load` for each request (JSON of requests, answers and their times in it), and how many were in time.
cluster: the paper's 25 L4 and 75 P4 at a tenth of the size (3 and 7), each a paced agent on loopback that takes what the profile says (PPipe, USENIX ATC 2025;
the shared data), a toy network with as many blocks standing in for each of --profiles (several: models of one of the paper's workloads, by their weights). Our plan, NP (whole models on one kind) and DART-r (chains of two devices) are served one
after the other by the same arrivals that the simulator gets, at the load at which the simulator says 99 %, three points below and above it, and at five
times our plan's.
migration: two paced agents at 30 % of what is planned, and the same while three other plans take over; what was lost, and what of all was in time.
pauses: that cluster at 86 % of what is planned, while one agent of the second stage, or all, are stopped for a moment.
--stretch N takes N times as long for everything (deadlines too), for machines whose own pauses are as long as the paper's deadlines."""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc")]
from cluster import BUILD, Cluster  # noqa: E402

SHARED = os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared"))
DATA = os.path.join(SHARED, "data", "ppipe")
PAUSE_S = 0.3
METHODS = {"plan": "exact", "NP": "np", "DART-r": "dart"}


# ---- a toy network, as an ONNX file ----

def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def chain(path, blocks, width):
    """As many blocks of Neg and Sigmoid one after the other, any batch of `width` numbers."""
    shape = field(1, field(2, "batch")) + field(1, field(1, width))
    value = lambda name: field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))  # noqa: E731
    names = ["x"] + [f"v{i}" for i in range(1, 2 * blocks)] + ["y"]
    nodes = b"".join(field(1, field(1, names[i]) + field(2, names[i + 1]) + field(3, f"n{i}") + field(4, ("Neg", "Sigmoid")[i % 2])) for i in range(2 * blocks))
    graph = nodes + field(2, "toy") + field(11, value("x")) + field(12, value("y"))
    with open(path, "wb") as f:
        f.write(field(1, 8) + field(7, graph) + field(8, field(2, 13)))
    return path


# ---- files ----

def write(path, value):
    with open(path, "w") as f:
        json.dump(value, f)
    return path


def node(name, kind, bandwidth):
    return {"name": name, "devices": [{"name": "d", "kind": kind, "memory_bytes": 1e9}], "nics": [{"name": "eth0", "bandwidth_bytes_per_s": bandwidth, "latency_s": 0}]}


def processor_s(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(c, *args):
    return c.hpctl("load", *([] if "--workload" in args else ["net"]), *map(str, args), timeout=600)


def machine_busy():
    return f"load {os.getloadavg()[0]:.1f}"


# ---- what a request costs ----

def overhead(o):
    batches = [1, 2, 4, 8, 16, 32]
    with tempfile.TemporaryDirectory(prefix="hp-bench-") as folder:
        # A block that takes 0.4 ms for one and 2 ms for 32: over twice as many a second as the highest rate.
        table = {"share": [1], "batch": batches, "seconds": [[0.0004 + 0.00005 * (n - 1) for n in batches]]}
        profile = write(os.path.join(folder, "p.json"), {"format": "hp-profile/1", "model": "toy", "layers": [{"name": "b0", "class": "b0", "output_bytes": 64}],
                                                         "latency": {"X": {"b0": table}}})
        cluster = write(os.path.join(folder, "c.json"), {"format": "hp-cluster/1", "nodes": [node("x0", "X", 1e10)]})
        workload = write(os.path.join(folder, "w.json"), {"format": "hp-workload/1", "slo_margin": 0.4, "models": [
            {"name": "net", "model": chain(os.path.join(folder, "toy.onnx"), 1, 16), "profile": profile, "weight": 1, "slo_s": 0.1}]})
        with Cluster(agents=1, cores=1, pace=cluster, profile=profile) as c:
            told = c.hpctl("apply", "-f", workload)
            print(f"planned for {told['models'][0]['planned_per_s']:.0f} requests/s, deadline {told['models'][0]['slo_s'] * 1e3:.0f} ms")
            pid = c.local()["coordinator"]["pid"]
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), {0})
            load(c, "--arrivals", "uniform", "--rate", 200, "--seconds", 2)
            for rate in o.rates:
                before = processor_s(pid)
                r = load(c, "--arrivals", "uniform", "--rate", rate, "--seconds", o.seconds)
                spent = processor_s(pid) - before
                print(f"{rate:6.0f} requests/s: coordinator {spent / r['requests'] * 1e6:6.1f} us of a processor each ({100 * spent / r['wall_s']:.0f} % of a core), hpctl "
                      f"{r['hpctl_processor_s'] / r['requests'] * 1e6:5.1f} us; batches of {r['mean_batch']:.1f}; {100 * r['attainment']:.2f} % in time, "
                      f"{r['refused']} refused, median {r['end_to_end_s']['p50'] * 1e3:.1f} ms ({machine_busy()})", flush=True)


# ---- the paper's cluster ----

def stretched(profile, by):
    for classes in profile["latency"].values():
        for table in classes.values():
            table["seconds"] = [[v if v is None else v * by for v in row] for row in table["seconds"]]
    return profile


def cluster_files(o, folder):
    """The cluster, the profile that paces its agents (their times and bytes come with each share), and the workload."""
    names = sorted(w for w in os.listdir(os.path.join(DATA, "workloads")) if w.startswith("maf19") and w.endswith("L4-P4.json"))
    with open(os.path.join(DATA, "workloads", next(w for w in names if all(p in w for p in o.profiles)))) as f:
        given = json.load(f)
    with open(os.path.join(DATA, "clusters", "L4-P4.json")) as f:
        bandwidth = json.load(f)["nic"]["bandwidth_bytes_per_s"] / o.stretch
    models, files = [], []
    for m in (m for m in given["models"] if m["name"] in o.profiles):
        with open(os.path.join(DATA, "profiles", m["name"] + ".json")) as f:
            profile = stretched(json.load(f), o.stretch)
        files.append(write(os.path.join(folder, m["name"] + ".profile.json"), profile))
        models.append({"name": m["name"], "model": chain(os.path.join(folder, m["name"] + ".onnx"), len(profile["layers"]), 16), "profile": files[-1],
                       "weight": m["weight"], "slo_s": m["slo_s"] * o.stretch})
    workload = {"format": "hp-workload/1", "slo_margin": given["slo_margin"], "max_stages": given["max_stages"], "share_devices_across_pipelines": False, "models": models}
    nodes = [node(f"l{i}", "L4", bandwidth) for i in range(3)] + [node(f"p{i}", "P4", bandwidth) for i in range(7)]
    return write(os.path.join(folder, "c.json"), {"format": "hp-cluster/1", "nodes": nodes}), files[0], write(os.path.join(folder, "w.json"), workload)


def hpctl(*words):
    run = subprocess.run([os.path.join(BUILD, "hpctl"), *map(str, words), "-o", "json"], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"hpctl {' '.join(map(str, words))}: {run.stderr.strip()}")
    return json.loads(run.stdout)


class Planned:
    """A method's plan, and what the simulator says of it."""

    def __init__(self, o, folder, cluster, workload, method):
        self.where = ["--cluster", cluster, "--workload", workload]
        plan = hpctl("plan", "pools", *self.where, "--method", method)
        self.file = write(os.path.join(folder, method + ".json"), plan)
        self.rate = sum(m["throughput_per_s"] for m in plan["models"])
        self.load = hpctl("simulate", self.file, *self.where, "--rates", "weights", "--sweep", "--together", "--step", 0.01, "--max-load", 1.2, "--seconds", 60)["max_load"]

    def simulated(self, at, seconds, seed):
        """How many of all requests are in time."""
        told = hpctl("simulate", self.file, *self.where, "--rates", "weights", "--load", at, "--seconds", seconds, "--seed", seed)["models"]
        return sum(m["in_time"] for m in told), sum(m["arrived"] for m in told)


def served(o, c, p, at):
    """Attainment that the simulator says and that was served, requests in time of each, and what was late, over the repeats."""
    said = was = late = requests = on_time = 0
    for seed in range(1, o.repeat + 1):
        in_time, arrived = p.simulated(at, o.seconds, seed)
        r = load(c, "--workload", "--rate", at * p.rate, "--seconds", o.seconds, "--seed", seed)
        said += in_time * r["requests"] / arrived
        was += r["good"]
        on_time += r["in_time_at_coordinator"]
        late += r["done"] - r["in_time_at_coordinator"]
        requests += r["requests"]
    return said, was, on_time, late, requests


def cluster(o):
    if not os.path.isdir(DATA):
        print(f"skipped: there is no {DATA}; set HP_SHARED")
        return
    with tempfile.TemporaryDirectory(prefix="hp-bench-") as folder:
        files = cluster_files(o, folder)
        plans = {name: Planned(o, folder, files[0], files[2], method) for name, method in METHODS.items()}
        goodput, peak = {}, 0
        with Cluster(agents=10, cores=1, pace=files[0], profile=files[1]) as c:
            for name, p in plans.items():
                told = c.hpctl("apply", "-f", files[2], "--method", METHODS[name], timeout=300)
                c.wait("it serves", lambda: c.hpctl("pools")["state"] == "serving", 60)
                print(f"{name}: {len(told['current']['shares'])} shares, planned {p.rate:.1f}/s, 99 % by simulation at {100 * p.load:.0f} % of it", flush=True)
                load(c, "--workload", "--rate", p.rate * 0.5, "--seconds", 3)
                for points in (-3, 0, 3):
                    at = p.load + points / 100
                    said, was, on_time, late, requests = served(o, c, p, at)
                    print(f"  load {100 * at:4.0f} %: {requests} requests, in time {100 * said / requests:.2f} % simulated, {100 * was / requests:.2f} % served "
                          f"({100 * on_time / requests:.2f} % at the coordinator, {late} admitted and late; {machine_busy()})", flush=True)
                    if points == 0:
                        goodput[name] = (said, was)
                    peak = max(peak, was) if name == "plan" else peak
                if name == "plan":
                    over = load(c, "--workload", "--rate", 5 * p.rate, "--seconds", o.seconds)
                    print(f"  five times its rate: {100 * over['good'] * o.repeat / peak:.0f} % of the most that it served", flush=True)
        for name in ("NP", "DART-r"):
            ratios = [goodput["plan"][i] / goodput[name][i] for i in (0, 1)]
            print(f"plan / {name}: {ratios[0]:.3f} simulated, {ratios[1]:.3f} served ({100 * (ratios[1] / ratios[0] - 1):+.1f} %)")


# ---- agents that stand still ----

def pauses(o):
    """What is in time while an agent that computes second stages, or all agents, are stopped for a moment."""
    if not os.path.isdir(DATA):
        print(f"skipped: there is no {DATA}; set HP_SHARED")
        return
    with tempfile.TemporaryDirectory(prefix="hp-bench-") as folder:
        files = cluster_files(o, folder)
        with Cluster(agents=10, cores=1, pace=files[0], profile=files[1]) as c:
            rate = 0.86 * sum(m["planned_per_s"] for m in c.hpctl("apply", "-f", files[2], timeout=300)["models"])
            pids = {a["name"]: a["pid"] for a in c.local()["agents"]}
            load(c, "--workload", "--rate", rate, "--seconds", 3)

            def stop(names):
                for name in names:
                    os.kill(pids[name], signal.SIGSTOP)
                time.sleep(PAUSE_S * o.stretch)
                for name in names:
                    os.kill(pids[name], signal.SIGCONT)

            for said, names in (("none", []), ("one L4", [n for n in pids if n.startswith("l2")]), ("all", list(pids)), ("none", [])):
                stopper = threading.Timer(0.2 * o.seconds, stop, (names,))
                stopper.start()
                r = load(c, "--workload", "--rate", rate, "--seconds", o.seconds)
                stopper.join()
                print(f"{said} stopped for {PAUSE_S * o.stretch:g} s of {o.seconds:g}: {r['requests']} requests, {100 * r['attainment']:.2f} % in time, {r['refused']} refused, "
                      f"{r['done'] - r['in_time_at_coordinator']} admitted and late ({machine_busy()})", flush=True)


# ---- a plan that takes over ----

def migration(o):
    """The same load with and without other plans that take over meanwhile."""
    with tempfile.TemporaryDirectory(prefix="hp-bench-") as folder:
        table = {"share": [1], "batch": [1, 2, 4], "seconds": [[0.01 * o.stretch, 0.012 * o.stretch, 0.016 * o.stretch]]}
        profile = write(os.path.join(folder, "p.json"), {"format": "hp-profile/1", "model": "toy", "layers": [{"name": "b0", "class": "b0", "output_bytes": 64}],
                                                         "latency": {"X": {"b0": table}}})
        cluster = write(os.path.join(folder, "c.json"), {"format": "hp-cluster/1", "nodes": [node(f"x{i}", "X", 1e10) for i in range(2)]})
        network = chain(os.path.join(folder, "toy.onnx"), 1, 16)
        workloads = [write(os.path.join(folder, f"w{i}.json"), {"format": "hp-workload/1", "slo_margin": margin, "models": [
            {"name": "net", "model": network, "profile": profile, "weight": 1, "slo_s": 0.1 * o.stretch}]}) for i, margin in enumerate((0.4, 0.5))]
        with Cluster(agents=2, cores=1, pace=cluster, profile=profile) as c:
            rate = 0.3 * c.hpctl("apply", "-f", workloads[0])["models"][0]["planned_per_s"]
            load(c, "--rate", rate, "--seconds", 2)
            for changes in (0, 3) * o.repeat:
                plans = c.hpctl("pools")["current"]["number"]
                changer = threading.Timer(0.2 * o.seconds, lambda n=changes: [(c.hpctl("apply", "-f", workloads[(i + 1) % 2]), time.sleep(0.15 * o.seconds)) for i in range(n)])
                changer.start()
                r = load(c, "--rate", rate, "--seconds", o.seconds)
                changer.join()
                print(f"{changes} changes (plan {plans} to {c.hpctl('pools')['current']['number']}): {r['requests']} requests, {100 * r['attainment']:.2f} % in time, {r['refused']} refused, "
                      f"{r['requests'] - r['done'] - r['refused']} lost, {r['done'] - r['in_time_at_coordinator']} admitted and late ({machine_busy()})", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["overhead", "cluster"])
    parser.add_argument("--rates", type=lambda t: [float(x) for x in t.split(",")], default=[500, 1000, 2000, 5000])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--stretch", type=float, default=1)
    parser.add_argument("--profiles", type=lambda t: t.split(","), default=["convnext"])
    parser.add_argument("--repeat", type=int, default=3)
    o = parser.parse_args()
    for part in o.parts:
        {"overhead": overhead, "cluster": cluster, "migration": migration, "pauses": pauses}[part](o)


if __name__ == "__main__":
    main()
