#!/usr/bin/env python3
"""What formats of rows on the wire are worth, by the speed of the link: time to the first token of a prompt over two agents of one core, float32 against f16 and q8, interleaved, medians; on loopback, on links of 1 Gbit/s and
100 Mbit/s, and on one whose hop takes float32 twice as long as a stage computes.

    bench/wire.py [--tokens 512] [--repeat 5] [--small] [--links loopback,1gbit,100mbit,twice]

The model is the 1.1B one in Q8_0, so that a stage is fast."""
import argparse
import os
import random
import statistics
import subprocess
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc"), os.path.dirname(os.path.abspath(__file__))]
from bounds import held  # noqa: E402
from shaped import clusters  # noqa: E402
from two_agents import first_token, model_file  # noqa: E402

WIRES = ("f32", "f16", "q8")


def model_of(small):
    if small:
        return model_file(True), 512
    model = os.path.join(os.environ.get("BENCH_DIR", "/tmp"), "hp-bench-1.1b-q8.gguf")
    if not os.path.exists(model):
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "make_random_model.py"), model, "--type", "q8_0"], check=True)
    return model, 2048


def deployments(model, tokens):
    return [(model, wire, "--agents", "a0,a1", "--wire", wire, "--prefix-cache", "off", "--max-context", str(tokens + 64), "--max-sequences", "1") for wire in WIRES]


def stage_seconds(c, name, ids):
    """Compute of the slower stage for such a prompt, by the agents' counters of busy time."""
    def busy():
        time.sleep(2.5)  # a heartbeat, so that all is in
        return [s["busy_s"] for s in c.hpctl("describe", name)["stages"]]
    before = busy()
    first_token(c, name, ids)
    return max(b - a for a, b in zip(before, busy()))


def measure(c, what, prompts):
    times = {wire: [] for wire in WIRES}
    for turn, ids in enumerate(prompts):
        for wire in WIRES if turn % 2 else reversed(WIRES):
            took = first_token(c, wire, ids)
            if turn:  # the first one warms up
                times[wire].append(took)
    base, found = times["f32"], {}
    for wire in WIRES:
        ratio = [a / b for a, b in zip(base, times[wire])]
        found[wire] = statistics.median(ratio)
        slices = c.hpctl("describe", wire)["prefill"]["records"]
        n = len(slices[0]["slices"]) if slices and "slices" in slices[0] else 0
        print(f"  {what:24} {wire:>4}: {statistics.median(times[wire]):7.3f} s, {statistics.median(ratio):5.2f} times as fast as f32 ({min(ratio):.2f}-{max(ratio):.2f})" + (f", {n} slices" if n else ""), flush=True)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a narrow model: to try the script")
    parser.add_argument("--links", default="loopback,1gbit,100mbit,twice")
    o = parser.parse_args()
    model, width = model_of(o.small)
    chance = random.Random(1)
    prompts = [[chance.randrange(3, 8000) for _ in range(o.tokens)] for _ in range(o.repeat + 1)]
    print(f"{os.path.basename(model)}, {o.tokens} tokens over two agents of one core, median of {o.repeat}, load {os.getloadavg()[0]:.1f}:", flush=True)
    found = {}
    for link, c in clusters(o.links.replace("twice", "None"), 2):
        if link != "None":
            c.deploy_on(link, deployments(model, o.tokens))
            found[link] = measure(c, link, prompts)
            continue
        c.deploy_on(None, deployments(model, o.tokens))
        rate = o.tokens * width * 4 * 8 / (2 * stage_seconds(c, "q8", prompts[0]))
        for wire in WIRES:
            c.hpctl("undeploy", wire)
        c.deploy_on(f"{int(rate)}bit", deployments(model, o.tokens))
        found["twice"] = measure(c, f"{rate / 1e6:.1f} Mbit/s (hop = 2 stages)", prompts)
    print(f"load {os.getloadavg()[0]:.1f}")
    best = {link: max(v["f16"], v["q8"]) for link, v in found.items()}
    held("wire", ("q8 over f32 where the hop takes two stages", found.get("twice", {}).get("q8"), ">=", 1.6), ("the better of f16 and q8 at 100 Mbit/s", best.get("100mbit"), ">=", 0.98))


main()
