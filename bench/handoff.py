#!/usr/bin/env python3
"""Prompts read by agents of their own (`deploy --prefill a0 --decode a1`) against one deployment on the same two agents, in turns.

    bench/handoff.py [--tokens 1024] [--repeat 5] [--small]; HP_BENCH_LINKS=loopback,1gbit shapes the links (bench/shaped.py)

A lone prompt: the time to its first token, and how long its keys and values were on their way after the last token had been computed, beside what
the last slice's take over the link as it was measured. Then answers that run while long prompts come: the time between two tokens, and to the
first one of the long prompts."""
import os
import random
import statistics
import sys
import threading
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc"), os.path.dirname(os.path.abspath(__file__))]
from bounds import held  # noqa: E402
from shaped import clusters  # noqa: E402
from two_agents import model_file, options  # noqa: E402

SLICE, STREAMS, LONG, ANSWER, LINKS = 128, 3, 4, 120, 4


def first_token(c, name, ids):
    status, body = c.request("POST", "/v1/completions", {"model": name, "prompt": ids, "max_tokens": 2, "temperature": 0, "ignore_eos": True}, timeout=600)
    assert status == 200, body
    return body["timings"]["waited_s"] + body["timings"]["prefill_s"]


def handoffs(c):
    return c.hpctl("describe", "apart")["handoffs"]


def stream_gaps(c, name, ids, gaps):
    """Seconds between the tokens of one answer."""
    s = c.stream("/v1/completions", {"model": name, "prompt": ids, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True}, timeout=600)
    last = None
    for e in s.events():
        now = time.monotonic()
        if e and e.get("choices"):
            if last:
                gaps.append(now - last)
            last = now
    s.close()


def together(c, name, draw, tokens):
    """Answers that run, and long prompts one after the other beside them."""
    gaps, firsts = [], []
    threads = [threading.Thread(target=stream_gaps, args=(c, name, draw(32), gaps)) for _ in range(STREAMS)]
    for t in threads:
        t.start()
    time.sleep(0.2)
    for _ in range(LONG):
        firsts.append(first_token(c, name, draw(tokens)))
    for t in threads:
        t.join()
    gaps.sort()
    return statistics.median(gaps), gaps[int(len(gaps) * 0.99)], statistics.median(firsts)


def measured_link(c):
    """Bytes a second from the agent that reads to the one that answers, while nothing runs."""
    c.run("topo", "--measure", timeout=120)
    return next(x["bandwidth_bytes_per_s"] for x in c.hpctl("topo")["links"] if x["from"].startswith("a0/") and x["to"].startswith("a1/"))


def main():
    o = options()
    model = model_file(o.small)
    chance = random.Random(1)
    draw = lambda n: [chance.randrange(3, 8000) for _ in range(n)]  # noqa: E731
    bounds = []
    for link, c in clusters(os.environ.get("HP_BENCH_LINKS", "loopback"), 2):
        print(f"{link}:")
        fixed = ("--max-context", str(o.tokens + 256), "--max-sequences", "8", "--prefix-cache", "off", "--slice", str(SLICE))
        c.deploy_on(link, [(model, "one", "--agents", "a0,a1", *fixed), (model, "apart", "--prefill", "a0", "--decode", "a1", *fixed)])
        links = [measured_link(c)]
        for name in ("one", "apart"):
            first_token(c, name, draw(o.tokens))  # warms up
        one, apart, exposed, per_token = [], [], [], 0
        for _ in range(o.repeat):
            one.append(first_token(c, "one", draw(o.tokens)))
            before = handoffs(c)
            apart.append(first_token(c, "apart", draw(o.tokens)))
            after = handoffs(c)
            exposed.append(after["exposed_s"] - before["exposed_s"])
            per_token = (after["bytes"] - before["bytes"]) / (o.tokens - 1)
            if len(links) < LINKS:
                links.append(measured_link(c))
        bandwidth = max(links)  # beside other work a link seems slower than it is, never faster
        last = (o.tokens - 2) % SLICE + 1
        allowed = last * per_token / bandwidth + 0.005
        f, s, x = (statistics.median(v) for v in (one, apart, exposed))
        print(f"a lone prompt of {o.tokens}: one deployment {f:.3f} s, apart {s:.3f} s, {s / f:.2f} of it", flush=True)
        print(f"its keys and values: {per_token:.0f} bytes a token; the last {last} tokens' at {bandwidth / 1e6:.0f} MB/s (measured between the prompts: {', '.join(f'{x / 1e6:.0f}' for x in links)}) and 5 ms: {allowed * 1e3:.1f} ms; exposed {x * 1e3:.1f} ms "
              f"(largest {max(exposed) * 1e3:.1f})", flush=True)
        bounds.append((f"exposed of what is allowed, {link}", x / allowed, "<=", 1))
        rows = {name: [] for name in ("one", "apart")}
        for _ in range(o.repeat):
            for name in rows:
                rows[name].append(together(c, name, draw, o.tokens))
        for name, values in rows.items():
            middle, worst, first = (statistics.median(v) for v in zip(*values))
            print(f"{STREAMS} answers beside long prompts, {name:5}: {middle * 1e3:.1f} ms a token, {worst * 1e3:.1f} ms at the 99th percentile; a long prompt's first token {first:.3f} s", flush=True)
    print(f"{os.path.basename(model)}, median of {o.repeat}, load {os.getloadavg()[0]:.1f}")
    held("handoff", *bounds)


main()
