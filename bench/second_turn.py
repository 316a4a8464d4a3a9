#!/usr/bin/env python3
"""The second turn of a chat: 100 tokens after 1500 that the stages have, against the 1500; and a hit of 90 % of 2000. On one agent and over three. Then many requests with a common prompt of 2000 tokens.

    bench/second_turn.py [--repeat 5] [--small]; HP_BENCH_LINKS=loopback,1gbit,100mbit shapes the links (bench/shaped.py)

Times are those to the first token, waiting included, medians; beside them what the plan says of the second turn, by a profile that is measured
before. Three agents are compared with their plan where each has a core of its own; two are where there are two."""
import os
import queue
import random
import statistics
import sys
import threading

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc"), os.path.dirname(os.path.abspath(__file__))]
from bounds import held  # noqa: E402
from shaped import clusters  # noqa: E402
from two_agents import model_file, options  # noqa: E402

CASES = (("a turn of 100 after 1500", 1500, 1600), ("90 % of 2000", 1800, 2000))


def first_token(c, name, ids):
    """Seconds to it, how many tokens were there already, and the plan's seconds (None: not compared)."""
    status, body = c.request("POST", "/v1/completions", {"model": name, "prompt": ids, "max_tokens": 2, "temperature": 0, "ignore_eos": True}, timeout=600)
    assert status == 200, body
    return body["timings"]["waited_s"] + body["timings"]["prefill_s"], body["usage"]["prompt_tokens_details"]["cached_tokens"], body["timings"].get("planned_s")


def many_alike(c, model, draw, n=1000, common=2000, own=8, at_once=48):
    """n requests, each with `own` tokens after the same `common` ones: what was computed, and the most that was stored at once."""
    c.hpctl("deploy", model, "--name", "many", "--agents", "a3", "--max-context", "2112", "--max-sequences", str(at_once), timeout=600)
    ids, todo, computed, failed = draw(common), queue.Queue(), [], []
    for i in range(n):
        todo.put(i)

    def work():
        while True:
            try:
                todo.get_nowait()
            except queue.Empty:
                return
            status, body = c.request("POST", "/v1/completions", {"model": "many", "prompt": ids + draw(own), "max_tokens": 2, "temperature": 0, "ignore_eos": True}, timeout=600)
            if status == 200:
                computed.append(body["usage"]["prompt_tokens"] - body["usage"]["prompt_tokens_details"]["cached_tokens"])
            else:
                failed.append(body)

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    for t in threads:
        t.start()
    most = 0
    while any(t.is_alive() for t in threads):
        told = c.hpctl("describe", "many")
        pages = told["prefix_cache"]
        most = max(most, pages["pages_own"] + pages["pages_shared"])
        threads[0].join(0.5)
    assert not failed, failed[0]
    page, once = told["prefix_cache"]["page_tokens"], common // told["prefix_cache"]["page_tokens"]
    print(f"{n} requests of {common} tokens in common and {own} of their own, {at_once} at once: {sum(computed)} tokens were computed where {n * (common + own)} were asked for; "
          f"at most {most} pages of {page} tokens were in use by those that ran, {once} of them the common ones (apart they would be {at_once * (once + 1)})", flush=True)
    assert sum(computed) < common + n * (own + 1) + 2 * common, sum(computed)
    assert most <= once + 2 * at_once, most
    c.hpctl("undeploy", "many")


def turns(c, o, link, model, draw):
    """Rows for bounds.held."""
    places, bounds, cores = (("one", "a3"), ("two", "a0,a1"), ("three", "a0,a1,a2")), [], len(os.sched_getaffinity(0))
    c.deploy_on(link, [(model, name, "--agents", agents, "--max-context", "2112", "--max-sequences", "4") for name, agents in places])
    for name, _ in places:
        first_token(c, name, draw(600))  # warms up
    for n, (name, _) in enumerate(places):  # what three that share cores teach of their kind comes last
        for what, before, length in CASES:
            whole, first, second, plan = [], [], [], []
            for _ in range(o.repeat):
                ids = draw(length)
                first.append(first_token(c, name, ids[:before])[0])
                took, cached, planned = first_token(c, name, ids)
                assert cached == before, (cached, before)
                second.append(took)
                plan.extend([took / planned] if planned else [])
                whole.append(first_token(c, name, draw(length))[0])
            f, s, w = (statistics.median(v) for v in (first, second, whole))
            told = statistics.median(plan) if plan else None
            apart = cores > n  # each agent has a core of its own
            print(f"{link}: {what}, {name:5} agent{'s' if n else ''}: the first {f:.3f} s, the second {s:.3f} s, all of it without a hit {w:.3f} s; second / first {s / f:.3f} (1/{f / s:.1f}); "
                  f"measured / planned {told or float('nan'):.2f} ({min(plan, default=0):.2f}-{max(plan, default=0):.2f}){'' if apart else ', agents share cores'}", flush=True)
            if n != 1:
                bounds.append((f"{what}, {name}, {link}", s / f if before == 1500 else s / w, "<=", 1 / 8 if n == 0 else 1 / 5))
            if apart:
                bounds.append((f"off the plan, {name}", told and abs(told - 1), "<=", 0.1))
    return bounds


def main():
    o = options()
    model = model_file(o.small)
    chance = random.Random(1)
    draw = lambda n: [chance.randrange(3, 8000) for _ in range(n)]  # noqa: E731
    bounds = []
    for link, c in clusters(os.environ.get("HP_BENCH_LINKS", "loopback"), 4):
        if link == "loopback":
            c.hpctl("profile", model, "--nodes", "a0", "--budget", "15", timeout=120)
        bounds += turns(c, o, link, model, draw)
        if link == "loopback":
            many_alike(c, model, draw)
    print(f"{os.path.basename(model)}, median of {o.repeat}, load {os.getloadavg()[0]:.1f}")
    held("second_turn", *bounds)


if __name__ == "__main__":
    main()
