#!/usr/bin/env python3
"""Goodput of mixed lengths on three agents: requests a second within two targets, of this build and of an older one, interleaved, medians.

    HP_BASE=FOLDER bench/goodput.py [--repeat 3] [--seconds 15] [--small|--demo] [--rates 1,2,4] [--targets TTFT,TPOT] [--prompts L] [--answers L]

HP_BASE is the build folder of the older programs (hpctl, hp-agent, hp-coordinator); without it this build is measured alone. Both builds are driven
by this build's `hpctl load` with the same requests, one after the other, and each has its own cluster, which is idle meanwhile. This build's is deployed with the targets, which it keeps. These are those
given, or 8 times what an idle deployment of the first build takes to a first token and 3 times what it takes for each token after it. Rates rise until
both builds are past their peak; then each gets five times the rate of its own peak, and what is left of the peak is told."""
import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc"), os.path.dirname(os.path.abspath(__file__))]
from cluster import BUILD, DEMO, Cluster  # noqa: E402
from two_agents import model_file  # noqa: E402

TARGETS_KEPT = "new"  # deployed with `--ttft` and `--tpot`, which older builds do not have
STEP, PAST, OVERLOAD, MOST_RATES = 1.5, 0.8, 5, 12


class Built(Cluster):
    """A cluster of the programs of any build folder."""

    def __init__(self, build, **options):
        super().__init__(**options)
        self.build = build

    def run(self, *args, timeout=120, stdin=None):
        return subprocess.run([os.path.join(self.build, "hpctl"), *args], env=self.env, capture_output=True, text=True, input=stdin, timeout=timeout)

    def __exit__(self, kind, error, trace):
        self.run("local", "down", "--all")
        super().__exit__(kind, error, trace)

    def load(self, *args):
        done = subprocess.run([os.path.join(BUILD, "hpctl"), "load", "bench", "-o", "json", *map(str, args)], env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--small", action="store_true", help="8 narrow blocks instead of 1.1B parameters")
    parser.add_argument("--demo", action="store_true", help="the demo model: mostly overhead")
    parser.add_argument("--rates", help="instead of rates that rise by themselves")
    parser.add_argument("--targets", help="seconds to the first token, and for each after it")
    parser.add_argument("--prompts", default="lognormal:64..1024")
    parser.add_argument("--answers", default="lognormal:16..128")
    return parser.parse_args()


def targets_of(o, c):
    """Of requests that come one by one."""
    idle = c.load("--arrivals", "uniform", "--rate", 0.5, "--seconds", 20, "--prompt-tokens", o.prompts, "--answer-tokens", o.answers, "--seed", 99)
    return 8 * idle["ttft_s"]["p50"], 3 * idle["tpot_s"]["p50"], 1 / idle["end_to_end_s"]["p50"]


def measure(o, clusters, rates, targets, seed):
    """Reports of each build at its rate, interleaved; the last one's are told with the median."""
    reports = {name: [] for name in clusters}
    for turn in range(o.repeat):
        for name, c in clusters.items():
            reports[name].append(c.load("--rate", rates[name], "--seconds", o.seconds, "--patience", 4 * targets[0] + 10, "--prompt-tokens", o.prompts, "--answer-tokens", o.answers,
                                        "--ttft", f"{targets[0]}s", "--tpot", f"{targets[1]}s", "--seed", seed + turn))
    return reports


def deploy(c, model, *targets):
    c.run("undeploy", "bench")
    c.hpctl("deploy", model, "--name", "bench", "--agents", "a0,a1,a2", "--max-context", "2048", *targets, timeout=600)
    c.load("--rate", 2, "--seconds", 2)  # warms up


def goodput(reports):
    return statistics.median(r["goodput_per_s"] for r in reports)


def tell(name, rate, reports):
    m = lambda *keys: statistics.median(r[keys[0]][keys[1]] if len(keys) > 1 else r[keys[0]] for r in reports)  # noqa: E731
    causes = sorted({c["cause"] for r in reports for c in r["causes"]})
    print(f"{name:5} {rate:7.2f}/s: goodput {goodput(reports):6.2f}/s ({min(r['goodput_per_s'] for r in reports):.2f}-{max(r['goodput_per_s'] for r in reports):.2f}), {100 * m('attainment'):5.1f} % good; "
          f"done {m('done'):.0f}, refused {m('refused'):.0f}, failed {m('failed'):.0f}, open {m('open'):.0f} of {m('requests'):.0f}; first token p50 {m('ttft_s', 'p50'):.3f} p99 {m('ttft_s', 'p99'):.3f} s, "
          f"token p50 {1e3 * m('tpot_s', 'p50'):.1f} p99 {1e3 * m('tpot_s', 'p99'):.1f} ms, queue p50 {m('queue_s', 'p50'):.3f} s{' (' + ', '.join(causes) + ')' if causes else ''}", flush=True)


def main():
    o = options()
    base = os.environ.get("HP_BASE")
    model = DEMO if o.demo else model_file(o.small)
    builds = {**({"old": base} if base else {}), "new": BUILD}
    clusters = {name: Built(build, agents=3, cores=1, name=f"goodput-{name}") for name, build in builds.items()}
    opened = []
    try:
        for c in clusters.values():
            c.__enter__()
            opened.append(c)
            deploy(c, model)
        ttft, tpot, alone = targets_of(o, next(iter(clusters.values())))
        targets = tuple(float(t) for t in o.targets.split(",")) if o.targets else (ttft, tpot)
        if TARGETS_KEPT in clusters:
            deploy(clusters[TARGETS_KEPT], model, "--ttft", f"{targets[0]}s", "--tpot", f"{targets[1]}s")
        print(f"targets: {targets[0]:.3f} s to the first token, {1e3 * targets[1]:.1f} ms for each after it; {os.path.basename(model)}, prompts {o.prompts}, answers {o.answers}", flush=True)
        rates = [float(r) for r in o.rates.split(",")] if o.rates else [alone * STEP ** i for i in range(MOST_RATES)]
        peaks = {name: (0, 0) for name in clusters}
        for i, rate in enumerate(rates):
            reports = measure(o, clusters, dict.fromkeys(clusters, rate), targets, 1000 * i)
            for name in clusters:
                tell(name, rate, reports[name])
                peaks[name] = max(peaks[name], (goodput(reports[name]), rate))
            if not o.rates and all(goodput(reports[name]) < PAST * peaks[name][0] for name in clusters):
                break
        reports = measure(o, clusters, {name: OVERLOAD * rate for name, (_, rate) in peaks.items()}, targets, 77)
        for name, (peak, rate) in peaks.items():
            tell(name, OVERLOAD * rate, reports[name])
            print(f"{name:5} peak {peak:.2f}/s at {rate:.2f}/s; at {OVERLOAD} times that {100 * goodput(reports[name]) / peak if peak else 0:.0f} % of it")
        if base:
            print(f"goodput new / old at their peaks: {peaks['new'][0] / peaks['old'][0] if peaks['old'][0] else float('inf'):.2f}")
    finally:
        for c in opened:
            c.__exit__(*sys.exc_info())
    print(f"medians of {o.repeat} of {o.seconds:g} s, load {os.getloadavg()[0]:.1f}")


main()
