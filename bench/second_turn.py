#!/usr/bin/env python3
"""The second turn of a chat: 100 tokens after 1500 that the stages have, against the 1500; and a hit of 90 % of 2000. On one agent and over three. Then many requests with a common prompt of 2000 tokens.

    bench/second_turn.py [--repeat 5] [--small]; HP_BENCH_LINKS=loopback,1gbit,100mbit shapes the links (bench/shaped.py)

Times are those to the first token, waiting included, medians; beside them what the profile predicts for the second turn."""
import os
import queue
import random
import statistics
import sys
import threading

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc"), os.path.dirname(os.path.abspath(__file__))]
from shaped import clusters  # noqa: E402
from two_agents import model_file, options  # noqa: E402

CASES = (("a turn of 100 after 1500", 1500, 1600), ("90 % of 2000", 1800, 2000))


def first_token(c, name, ids):
    """Seconds to it, and how many tokens were there already."""
    status, body = c.request("POST", "/v1/completions", {"model": name, "prompt": ids, "max_tokens": 2, "temperature": 0, "ignore_eos": True}, timeout=600)
    assert status == 200, body
    return body["timings"]["waited_s"] + body["timings"]["prefill_s"], body["usage"]["prompt_tokens_details"]["cached_tokens"]


def against_plan(c, name):
    """Measured over planned of the last prompt, from its first stage's start to its last one's end; None: not compared."""
    records = c.hpctl("describe", name)["prefill"]["records"]
    return records[0]["measured_s"] / records[0]["planned_s"] if records and records[0].get("planned_s") else None


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
    places = (("one", "a3"), ("three", "a0,a1,a2"))
    c.deploy_on(link, [(model, name, "--agents", agents, "--max-context", "2112", "--max-sequences", "4") for name, agents in places])
    for name, _ in places:
        first_token(c, name, draw(600))  # warms up
    for what, before, length in CASES:
        for name, _ in places:
            whole, first, second, plan = [], [], [], []
            for _ in range(o.repeat):
                ids = draw(length)
                first.append(first_token(c, name, ids[:before])[0])
                took, cached = first_token(c, name, ids)
                assert cached == before, (cached, before)
                second.append(took)
                plan.append(against_plan(c, name))
                whole.append(first_token(c, name, draw(length))[0])
            f, s, w = (statistics.median(v) for v in (first, second, whole))
            told = statistics.median([p for p in plan if p]) if any(plan) else float("nan")
            print(f"{link}: {what}, {name:5} agent{'s' if name == 'three' else ''}: the first {f:.3f} s, the second {s:.3f} s, all of it without a hit {w:.3f} s; "
                  f"second / first {s / f:.3f} (1/{f / s:.1f}); measured / planned {told:.2f}", flush=True)


def main():
    o = options()
    model = model_file(o.small)
    chance = random.Random(1)
    draw = lambda n: [chance.randrange(3, 8000) for _ in range(n)]  # noqa: E731
    for link, c in clusters(os.environ.get("HP_BENCH_LINKS", "loopback"), 4):
        turns(c, o, link, model, draw)
        if link == "loopback":
            many_alike(c, model, draw)
    print(f"{os.path.basename(model)}, median of {o.repeat}, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
