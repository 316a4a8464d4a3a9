#!/usr/bin/env python3
"""Two agents of one core each against one: the time to the first token of a long prompt, interleaved, medians.

    bench/two_agents.py [--tokens 2048] [--repeat 5] [--small | --model FILE.gguf]

Prints the ratio, the pipeline's efficiency (compute of all stages over stages x time), and what two independent one-core agents do together
in the same run, which is this machine's own limit: cores share memory bandwidth, caches and power."""
import argparse
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
    a, b, l = statistics.median(one), statistics.median(two), statistics.median(both)
    print(f"prefill of {o.tokens} tokens, {os.path.basename(model)}, median of {o.repeat}, interleaved:")
    print(f"  one agent, one core            {a:8.3f} s to the first token")
    print(f"  two agents, one core each      {b:8.3f} s   ratio {a / b:.3f}")
    print(f"  efficiency                     {100 * statistics.median(efficiency):8.1f} %  (compute of the stages / (stages x time))")
    print(f"  two independent agents         {l:8.3f} s a prompt   ratio {a / l:.3f}: the machine's own limit")
    print(f"  of that limit                  {100 * l / b:8.1f} %")


if __name__ == "__main__":
    main()
