#!/usr/bin/env python3
"""Cold starts: `hpctl plan coldstart` on the models and sub-models of the SortingHat paper, against what is known of them.

    bench/coldstart.py [--seconds 10] [--sub-seconds 5] [--milp-seconds 30] [--only PATTERN]

Whole models: the plan's time, timed again by the tests' second implementation, beside serial, the list scheduler, the best known and
the lower bound of the reference. Sub-models: the same, and what lp_solve reaches with the published programme (whole sub-model at once)."""
import argparse
import csv
import json
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
from coldstart_rules import time_plan  # noqa: E402

HPCTL = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "hpctl")
DATA = os.path.join(os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared")), "data", "coldstart")


def plan(graph, *options):
    run = subprocess.run([HPCTL, "plan", "coldstart", "--graph", graph, "-o", "json", *map(str, options)], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"{graph} {options}: {run.stderr}")
    made = json.loads(run.stdout)
    with open(graph) as f:
        made["ms"] = time_plan(json.load(f), made) * 1e3
    return made


def rows_of(name, only):
    with open(os.path.join(DATA, name)) as f:
        return [row for row in csv.DictReader(f) if only in row["graph"]]


def whole_models(seconds, only):
    rows, ours, known = rows_of("reference.csv", only), [], []
    print(f"{'whole model, ' + str(seconds) + ' s each':28} {'plan':>9} {'bound':>9} {'known':>9} {'list':>9} {'serial':>9} {'speed-up':>9} {'of known':>9} {'over ref. bound':>16}")
    for row in rows:
        made = plan(os.path.join(DATA, "graphs", row["graph"] + ".json"), "--time-limit", seconds)
        serial, best, bound = (float(row[k]) for k in ("serial_ms", "best_known_ms", "lower_bound_ms"))
        ours.append(serial / made["ms"])
        known.append(serial / best)
        print(f"{row['graph']:28} {made['ms']:9.3f} {made['predicted']['bound_s'] * 1e3:9.2f} {best:9.2f} {float(row['list_scheduler_ms']):9.2f} {serial:9.2f} "
              f"{ours[-1]:9.3f} {known[-1]:9.3f} {100 * (made['ms'] / bound - 1):14.2f} %", flush=True)
    if rows:
        print(f"average speed-up {sum(ours) / len(ours):.4f}, of the best known {sum(known) / len(known):.4f}: ratio {sum(ours) / sum(known):.4f}")


def sub_models(seconds, milp_seconds, only):
    rows = rows_of("submodels.csv", only)
    print(f"\n{'sub-model, ' + str(seconds) + ' s each':28} {'plan':>9} {'bound':>9} {'known':>9} {'over known':>11}   lp_solve in {milp_seconds} s")
    for row in rows:
        graph, best = os.path.join(DATA, "graphs", row["graph"] + ".json"), float(row["best_known_ms"])
        made = plan(graph, "--time-limit", seconds)
        milp = plan(graph, "--method", "milp", "--dominators", 100, "--time-limit", milp_seconds) if milp_seconds > 0 else None
        told = f"{milp['ms']:9.3f} ms ({100 * (milp['ms'] / made['ms'] - 1):.1f} % above ours); {milp['why'][0]['reason']}" if milp else "not asked"
        print(f"{row['graph']:28} {made['ms']:9.4f} {made['predicted']['bound_s'] * 1e3:9.3f} {best:9.4f} {100 * (made['ms'] / best - 1):9.3f} %   {told}", flush=True)


def transmission():
    print(f"\n{'two buses, contention on':28} {'pt-dha':>9} {'interl.':>9} {'best':>9} {'ratio':>9}")
    for name in ("bert_base_two_buses", "roberta_base_two_buses"):
        graph = os.path.join(DATA, "chains", name + ".json")
        parts, interleaved, best = (plan(graph, *o)["ms"] for o in (("--method", "pt-dha"), ("--method", "interleaved"), ("--time-limit", 3)))
        print(f"{name:28} {parts:9.3f} {interleaved:9.3f} {best:9.3f} {parts / interleaved:9.3f} {parts / best:9.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--sub-seconds", type=float, default=5)
    parser.add_argument("--milp-seconds", type=float, default=30)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    if not os.path.isdir(DATA):
        raise SystemExit(f"{DATA} is not there: HP_SHARED names the folder of shared data")
    whole_models(arguments.seconds, arguments.only)
    sub_models(arguments.sub_seconds, arguments.milp_seconds, arguments.only)
    transmission()
