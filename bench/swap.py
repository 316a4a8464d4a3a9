#!/usr/bin/env python3
"""A sequence gives way to an older one for want of KV cache and comes back when that one ends: swapped (its pages go to the agents' memory and are read back) and recomputed, on one agent and over three.

    bench/swap.py [--tokens 4096] [--repeat 5] [--small]

Two clusters that differ in --kv-spill-memory alone take turns. The time is that from the older answer's last token to the next one of the sequence that gave way; --tokens is the KV cache that there is, of which that one has more than half.
Three agents share what cores there are. Answers are compared with those of an undisturbed run by tests/proc/spill_test.py, in float32."""
import http.client
import json
import os
import random
import statistics
import sys
import threading
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc"), os.path.dirname(os.path.abspath(__file__))]
from bounds import held  # noqa: E402
from cluster import Cluster, Failed  # noqa: E402
from two_agents import model_file, options  # noqa: E402

NAME = "demo"


def stream(c, ids, answer, times):
    """When each token came."""
    connection = http.client.HTTPConnection("127.0.0.1", c.port, timeout=600)
    body = {"model": NAME, "prompt": ids, "max_tokens": answer, "temperature": 0, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    for line in connection.getresponse():
        if line.startswith(b"data: {") and json.loads(line[6:])["choices"]:
            times.append(time.monotonic())
    connection.close()


def short_answers(c, draw):
    """Room is taken for answers as long as they were lately: few tokens, it seems."""
    while True:
        stream(c, draw(4), 1, [])
        if c.hpctl("describe", NAME)["growth"]["answer_tokens"] < 8:
            return


def comes_back(c, room, draw):
    """Seconds from the end of the older one; None where nobody gave way, or nobody came back in time."""
    before = c.hpctl("describe", NAME)
    older, younger = [], []
    one = threading.Thread(target=stream, args=(c, draw(room * 3 // 8), room // 12, older))
    other = threading.Thread(target=stream, args=(c, draw(room // 2), room // 8, younger))
    one.start()
    while not older:
        time.sleep(0.001)
    other.start()
    one.join()
    other.join()
    after = c.hpctl("describe", NAME)
    next_one = [t for t in younger if t > older[-1]]
    gave_way = after["growth"]["preempted"] - before["growth"]["preempted"]
    pause = max(b - a for a, b in zip(younger, younger[1:]))
    if gave_way != 1 or not next_one or next_one[0] - older[-1] > pause:
        return None, 0
    return next_one[0] - older[-1], after["growth"]["recomputed_tokens"] - before["growth"]["recomputed_tokens"]


def cluster_open(model, agents, tokens, spill):
    """With as little memory as has a KV cache of so many tokens."""
    least = 40 if "small" in model else 160
    spill_mb = least if spill else 0  # at most half of an agent's memory
    for mb in range(least, 25 * least, least // (4 * agents)):
        limits = {"kv_spill_memory": f"{spill_mb}MB"} if spill else {}
        c = Cluster(agents=agents, cores=1, memory=f"{mb + spill_mb}MB", **limits).__enter__()
        try:
            c.deploy(NAME, model, "--agents", ",".join(f"a{i}" for i in range(agents)), "--max-context", str(tokens), "--max-sequences", "8", "--prefix-cache", "off")
            return c
        except Failed as e:
            c.__exit__(None, None, None)
            if e.code != "infeasible":
                raise
    sys.exit("no memory is enough")


def measure(o, model, agents, draw):
    clusters, took, again, told = {}, {}, {}, None
    try:
        for spill in (True, False):
            clusters[spill], took[spill], again[spill] = cluster_open(model, agents, o.tokens, spill), [], []
        room = {spill: c.hpctl("describe", NAME)["kv_tokens"] for spill, c in clusters.items()}
        assert max(room.values()) < 2 * o.tokens, room
        for tries in range(4 * o.repeat):
            for spill, c in clusters.items():
                if len(took[spill]) == o.repeat:
                    continue
                short_answers(c, draw)
                seconds, tokens = comes_back(c, room[spill], draw)
                if seconds:
                    took[spill].append(seconds)
                    again[spill].append(tokens)
        told = clusters[True].hpctl("describe", NAME)["spills"]
        assert min(map(len, took.values())) == o.repeat and told["swaps"] >= o.repeat and told["failed"] == 0, (took, told)
    finally:
        for c in clusters.values():
            c.__exit__(None, None, None)
    swapped, anew = statistics.median(took[True]), statistics.median(took[False])
    print(f"{agents} agent{'s' if agents > 1 else ''}, KV cache of {room[False]} and {room[True]} tokens: next token after recomputing {statistics.median(again[False]):.0f} tokens {anew:.3f} s ({min(took[False]):.3f}-{max(took[False]):.3f}), swapped and {statistics.median(again[True]):.0f} recomputed "
          f"{swapped:.3f} s ({min(took[True]):.3f}-{max(took[True]):.3f}): {swapped / anew:.3f} (1/{anew / swapped:.1f}); planned {told['last_read_s']:.4f} of {told['last_compute_s']:.3f} s", flush=True)
    return swapped / anew


def main():
    sys.argv[1:1] = ["--tokens", "4096"]
    o = options()
    model, chance = model_file(o.small), random.Random(1)
    draw = lambda n: [chance.randrange(3, 8000) for _ in range(n)]  # noqa: E731
    bounds = [(f"swapped / recomputed, {agents} agents", measure(o, model, agents, draw), "<=", 0.5) for agents in (1, 3)]
    print(f"{os.path.basename(model)}, median of {o.repeat}, load {os.getloadavg()[0]:.1f}")
    held("swap", *bounds)


if __name__ == "__main__":
    main()
