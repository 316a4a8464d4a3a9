"""Pools under deadlines, on the published workloads: what is planned, how fast, and what it serves in simulation.

Compares with the published Gurobi plans and simulator (PPipe, USENIX ATC 2025; reference.csv, reference_simulation.csv of the shared data).
Arguments choose parts: plans, kinds, simulation, reactive, auto. Without arguments: all of them."""
import csv
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
SHARED = os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared"))
DATA = os.path.join(SHARED, "data", "ppipe")
HPCTL = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "hpctl")
KINDS = {"L4": ([1, 2, 3, 4], 4), "T4": ([1, 2, 3, 4], 2), "V100": ([1, 2, 3, 4], 2), "P4": ([1], 1)}


def hpctl(*words):
    run = subprocess.run([HPCTL, *map(str, words), "-o", "json"], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"hpctl {' '.join(map(str, words))}: {run.stderr.strip()}")
    return json.loads(run.stdout)


def inputs(name, cluster):
    return ["--cluster", os.path.join(DATA, "clusters", cluster + ".json"), "--workload", os.path.join(DATA, "workloads", name)]


def reference():
    with open(os.path.join(DATA, "reference.csv")) as f:
        return list(csv.DictReader(f))


def plans():
    least = {"whole": 9, "shared": 9, "np": 9}
    slowest = {"whole": 0, "shared": 0}
    for row in reference():
        where = inputs(row["workload"], row["cluster"])
        for name, words, column in (("whole", ["--share-devices", "off"], "best_whole_devices"),
                                    ("shared", ["--share-devices", "on"], "ppipe_gurobi"), ("np", ["--method", "np"], "no_partitioning")):
            plan = hpctl("plan", "pools", *where, *words)
            least[name] = min(least[name], plan["predicted"]["normalized_throughput_per_s"] / float(row[column]))
            if name in slowest:
                slowest[name] = max(slowest[name], plan["solver"]["seconds"])
    print(f"42 workloads, whole devices: at least {least['whole'] * 100:.3f} % of the best known, slowest {slowest['whole'] * 1e3:.1f} ms")
    print(f"42 workloads, shared devices: at least {least['shared'] * 100:.3f} % of Gurobi's, slowest {slowest['shared'] * 1e3:.0f} ms")
    print(f"np: at least {least['np'] * 100:.4f} % of the published")


def kinds():
    """Clusters of three and four kinds, from a hundred to a hundred thousand devices."""
    parts = {3: {"L4": 0.1, "T4": 0.6, "V100": 0.3}, 4: {"L4": 0.15, "T4": 0.35, "V100": 0.1, "P4": 0.4}}
    for n, part in parts.items():
        for total in (100, 1000, 10000, 100000):
            gaps, seconds, lp = [], [], []
            for name in ("maf19_apcnet-atss-gcnet_L4-P4.json", "maf19_effnetb8-encnet-rtmdet_V100-T4.json", "ablation_effnetb8_L4-T4.json"):
                with tempfile.TemporaryDirectory() as folder:
                    with open(os.path.join(DATA, "workloads", name)) as f:
                        workload = json.load(f)
                    workload["shares"] = {k: KINDS[k][0] for k in part}
                    for m in workload["models"]:
                        m["profile"] = os.path.abspath(os.path.join(DATA, "workloads", m["profile"]))
                    pools = [{"kind": k, "count": int(total * x), "devices_per_node": KINDS[k][1]} for k, x in part.items()]
                    cluster = {"format": "hp-cluster/1", "pools": pools, "nic": {"bandwidth_bytes_per_s": 1.25e9, "latency_s": 0}}
                    paths = os.path.join(folder, "c.json"), os.path.join(folder, "w.json")
                    for path, value in zip(paths, (cluster, workload)):
                        with open(path, "w") as f:
                            json.dump(value, f)
                    solver = hpctl("plan", "pools", "--cluster", paths[0], "--workload", paths[1])["solver"]
                    gaps.append(solver["gap"])
                    seconds.append(solver["seconds"])
                    lp.append(solver["lp_seconds"])
            print(f"{n} kinds, {total:6d} devices: at most {max(gaps) * 100:5.2f} % below the LP bound, {max(seconds):.2f} s, "
                  f"of which lp_solve {max(lp) * 1e3:.1f} ms")


def simulation():
    differences = []
    with open(os.path.join(DATA, "reference_simulation.csv")) as f:
        rows = list(csv.DictReader(f))
    for name in sorted({r["workload"] for r in rows}):
        cluster = name.rsplit("_", 1)[1][:-5]
        found = hpctl("simulate", os.path.join(DATA, "reference_plans", name), *inputs(name, cluster), "--sweep")
        loads = {m["name"]: m["max_load"] * 100 for m in found["models"]}
        differences += [loads[r["model"]] - float(r["max_load_percent_at_99"]) for r in rows if r["workload"] == name]
    size = [abs(d) for d in differences]
    print(f"{len(size)} highest loads of the published simulator: off by {sum(size) / len(size):.2f} points on average, "
          f"{max(size):.0f} at most, bias {sum(differences) / len(size):+.2f}")


def reactive():
    loads = {"reserving": [], "reactive": []}
    for row in reference():
        if not row["workload"].startswith("ablation"):
            continue
        where = inputs(row["workload"], row["cluster"])
        with tempfile.TemporaryDirectory() as folder:
            plan = os.path.join(folder, "plan.json")
            with open(plan, "w") as f:
                json.dump(hpctl("plan", "pools", *where), f)
            for scheduler, found in loads.items():
                found.append(hpctl("simulate", plan, *where, "--sweep", "--scheduler", scheduler)["max_load"])
    for scheduler, found in loads.items():
        print(f"ablation workloads, {scheduler}: highest load {sum(found) / len(found):.3f} on average, {min(found):.2f} at least")


def auto():
    """What --slo-margin auto serves at 99 % attainment, on seeds that the planner never saw."""
    seeds = (90001, 90002, 90003)
    ratios, spent = {s: [] for s in seeds}, []
    for row in reference():
        if not row["workload"].startswith("maf19"):
            continue
        where = inputs(row["workload"], row["cluster"])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            plan = hpctl("plan", "pools", *where, "--slo-margin", "auto")
            with open(path, "w") as f:
                json.dump(plan, f)
            spent.append(plan["solver"]["seconds"])
            weights = {m["name"]: m["weight"] for m in json.load(open(where[3]))["models"]}
            unit = min(m["throughput_per_s"] / weights[m["name"]] for m in plan["models"])
            for seed in seeds:
                found = hpctl("simulate", path, *where, "--sweep", "--rates", "weights", "--together", "--step", 0.005, "--max-load", 1.05, "--seed", seed)
                ratios[seed].append(found["max_load"] * unit / float(row["ppipe_gurobi"]))
        print(f"  {row['workload']:46s} " + " ".join(f"{ratios[s][-1]:.3f}" for s in seeds) + f"  ({spent[-1]:.1f} s)", flush=True)
    for seed in seeds:
        print(f"auto, seed {seed}: serves {sum(ratios[seed]) / len(ratios[seed]):.4f} of the reference plans' objective on average")
    print(f"planning took {sum(spent) / len(spent):.1f} s on average")


PARTS = {"plans": plans, "kinds": kinds, "simulation": simulation, "reactive": reactive, "auto": auto}

if not os.path.isdir(DATA):
    print(f"skipped: there is no {DATA}; set HP_SHARED")
    sys.exit(0)
for part in sys.argv[1:] or PARTS:
    started = time.monotonic()
    PARTS[part]()
    print(f"  [{part}: {time.monotonic() - started:.0f} s]", flush=True)
