#!/usr/bin/env python3
"""One stream over three agents (and over one), with guessed tokens and without, in pairs: tokens a second of text that repeats itself, and of text that
does not.

    bench/speculation.py [--repeat 5] [--small | --model FILE] [--stages 3,1]; HP_BENCH_LINKS=loopback,1gbit shapes the links (bench/shaped.py)

A greedy answer of random weights soon goes round in a circle; with temperature 3 every token is as good as drawn by lot."""
import argparse
import os
import random
import statistics
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc"), os.path.dirname(os.path.abspath(__file__))]
from bounds import held  # noqa: E402
from shaped import clusters  # noqa: E402
from two_agents import model_file  # noqa: E402

PROMPT, ANSWER = 200, 160


def stream(c, name, ids, **fields):
    """Seconds a token, and its text."""
    body = {"model": name, "prompt": ids, "max_tokens": ANSWER, "ignore_eos": True, **fields}
    status, body = c.request("POST", "/v1/completions", body, timeout=600)
    assert status == 200, body
    return body["timings"]["decode_s"] / (ANSWER - 1), body["choices"][0]["text"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a model of 8 narrow blocks instead of the 1.1B one")
    parser.add_argument("--model", help="another one, whose vocabulary has at least 8000 tokens")
    parser.add_argument("--stages", default="3,1", help="on how many agents")
    o = parser.parse_args()
    model = o.model or model_file(o.small)
    cuts = [(n, {1: "a3", 2: "a0,a1", 3: "a0,a1,a2"}[n]) for n in map(int, o.stages.split(","))]
    chance, found = random.Random(1), {}
    for link, c in clusters(os.environ.get("HP_BENCH_LINKS", "loopback"), 4):
        print(f"{link}:")
        c.deploy_on(link, [(model, mode + str(stages), "--agents", agents, "--max-context", "512", "--max-sequences", "4", "--speculate", mode, "--prefix-cache", "off")
                           for stages, agents in cuts for mode in ("off", "auto")])
        for stages, _ in cuts:
            for what, repeats in (("text that repeats", True), ("text that does not", False)):
                ratios, rates, same = [], [], 0
                for n in range(o.repeat + 1):
                    word = [chance.randrange(3, 8000) for _ in range(20)]
                    ids = (word * PROMPT)[:PROMPT] if repeats else [chance.randrange(3, 8000) for _ in range(PROMPT)]
                    fields = {"temperature": 0} if repeats else {"temperature": 3, "seed": n}
                    took = {mode: stream(c, mode + str(stages), ids, **fields) for mode in (("off", "auto") if n % 2 else ("auto", "off"))}
                    if n == 0:
                        continue  # warms up
                    same += took["off"][1] == took["auto"][1]
                    ratios.append(took["off"][0] / took["auto"][0])
                    rates.append(1 / took["off"][0])
                found[link, stages, repeats] = statistics.median(ratios)
                told = c.hpctl("describe", f"auto{stages}")["speculation"]
                print(f"{what}, {stages} agent{'s' if stages > 1 else ''}: {statistics.median(ratios):.3f} times as fast ({min(ratios):.3f} to {max(ratios):.3f}) as "
                      f"{statistics.median(rates):.1f} tokens/s without; {same} of {o.repeat} texts the same; so far {told['accepted']} of {told['drafts']} guesses "
                      f"were right, {told['tokens_per_step']:.2f} tokens a step with guesses", flush=True)
    print(f"{os.path.basename(model)}, median of {o.repeat}, load {os.getloadavg()[0]:.1f}")
    held("speculation", *((f"{'repeating' if repeats else 'random'} text, {stages} agents, {link}", ratio, ">=", 1.5 if repeats else 0.97)
                          for (link, stages, repeats), ratio in found.items() if stages == 3 or not repeats))


main()
