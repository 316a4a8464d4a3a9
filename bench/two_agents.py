#!/usr/bin/env python3
"""Two agents of one core each against one: the time to the first token of a long prompt, interleaved, medians.

    bench/two_agents.py [--tokens 2048] [--repeat 5] [--small | --model FILE.gguf]

Prints the ratio, the pipeline's efficiency (compute of all stages over stages x time), and what two independent one-core agents do together
in the same run, which is this machine's own limit: cores share memory bandwidth, caches and power. Below each prompt: how it was cut, and where its stages waited."""
import argparse
import itertools
import os
import random
import statistics
import subprocess
import sys
import threading
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc")]
from cluster import Cluster  # noqa: E402


def busy(c, name):
    return [s["busy_s"] for s in c.hpctl("describe", name)["stages"]]


def time_line(c, name):
    """Of the last prompt: its slices, how long each stage waited before its first one, between two, and after its last, and compute planned and measured."""
    record = c.hpctl("describe", name)["prefill"]["records"][0]
    end = record["stages"][-1]["measured"]["end_s"][-1]
    lines = []
    for stage in record["stages"]:
        at, planned = stage["measured"], stage.get("planned")
        between = sum(b - a for a, b in zip(at["end_s"], at["start_s"][1:]))
        lines.append({"before": at["start_s"][0], "between": between, "after": end - at["end_s"][-1],
                      "compute": sum(b - a for a, b in zip(at["start_s"], at["end_s"])),
                      "planned": sum(b - a for a, b in zip(planned["start_s"], planned["end_s"])) if planned else None})
    return record["slices"], lines, record.get("planned_s")


def time_line_print(slices, lines, planned_s):
    runs = [(size, len(list(same))) for size, same in itertools.groupby(slices)]
    print("    slices " + " ".join(f"{n}x{size}" if n > 1 else str(size) for size, n in runs) + (f"; planned {planned_s:.3f} s" if planned_s else ""))
    for j, l in enumerate(lines):
        print(f"    stage {j}: waits {l['before']:.3f} s before its first slice, {l['between']:.3f} between two, {l['after']:.3f} behind its last; computes {l['compute']:.3f} s"
              + (f", planned {l['planned']:.3f}" if l["planned"] else ""), flush=True)


def first_token(c, name, ids):
    status, body = c.request("POST", "/v1/completions", {"model": name, "prompt": ids, "max_tokens": 1, "temperature": 0, "ignore_eos": True}, timeout=600)
    assert status == 200, body
    return body["timings"]["prefill_s"]


def model_file(small):
    """Random weights, made once."""
    folder = os.environ.get("BENCH_DIR", "/tmp")
    model = os.path.join(folder, "hp-bench-small.gguf" if small else "hp-bench-1.1b.gguf")
    if not os.path.exists(model):
        shape = ["--blocks", "8", "--width", "512", "--heads", "8", "--kv-heads", "2", "--mlp", "1408", "--vocabulary", "8000"] if small else []
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "make_random_model.py"), model, *shape], check=True)
    return model


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a model of 8 narrow blocks instead of the 1.1B one: to try the script")
    parser.add_argument("--model", help="one of your own instead of the 1.1B one with random bf16 weights")
    return parser.parse_args()


def main():
    o = options()
    model = o.model or model_file(o.small)
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("this benchmark needs two cores")
    chance = random.Random(1)
    prompts = [[chance.randrange(3, 8000) for _ in range(o.tokens)] for _ in range(o.repeat + 1)]
    one, two, both, efficiency = [], [], [], []
    with Cluster(agents=4, cores=1) as c:  # cores are dealt in turn: a0, a2 on one, a1, a3 on the other
        context = str(o.tokens + 64)
        for name, agents in (("one", "a0"), ("other", "a3"), ("two", "a1,a2")):
            c.hpctl("deploy", model, "--name", name, "--agents", agents, "--max-context", context, "--prefix-cache", "off", timeout=600)
        for turn, ids in enumerate(prompts):
            alone = first_token(c, "one", ids)
            before = busy(c, "two")
            time.sleep(0.6)  # a heartbeat, so that the figures of the run before are in
            before = busy(c, "two")
            piped = first_token(c, "two", ids)
            time.sleep(1.2)
            work = [b - a for a, b in zip(before, busy(c, "two"))]
            line = time_line(c, "two")
            threads = [threading.Thread(target=first_token, args=(c, name, ids)) for name in ("one", "other")]
            started = time.monotonic()
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            together = (time.monotonic() - started) / 2
            if turn:  # the first one warms up
                one.append(alone), two.append(piped), both.append(together)
                efficiency.append(sum(work) / (len(work) * piped))
            print(f"  {'warm-up' if turn == 0 else turn}: one agent {alone:.3f} s, two in a pipeline {piped:.3f} s (stages {', '.join(f'{w:.3f}' for w in work)} s), "
                  f"two independent {together:.3f} s a prompt", flush=True)
            time_line_print(*line)
    a, b, l = statistics.median(one), statistics.median(two), statistics.median(both)
    print(f"prefill of {o.tokens} tokens, {os.path.basename(model)}, median of {o.repeat}, interleaved:")
    print(f"  one agent, one core            {a:8.3f} s to the first token")
    print(f"  two agents, one core each      {b:8.3f} s   ratio {a / b:.3f}")
    print(f"  efficiency                     {100 * statistics.median(efficiency):8.1f} %  (compute of the stages / (stages x time))")
    print(f"  two independent agents         {l:8.3f} s a prompt   ratio {a / l:.3f}: the machine's own limit")
    print(f"  of that limit                  {100 * l / b:8.1f} %")


if __name__ == "__main__":
    main()
