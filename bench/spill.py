#!/usr/bin/env python3
"""What a prompt costs of which nothing is in the KV cache any more: read back from the agents' memory, from their files, and computed anew; on one agent and over three.
What a sequence that gave way gains by it: bench/swap.py.

    bench/spill.py [--tokens 2048] [--repeat 5] [--small]

Times are those to the first token, waiting included, medians, interleaved. Three agents share what cores there are."""
import os
import random
import statistics
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc"), os.path.dirname(os.path.abspath(__file__))]
from bounds import held  # noqa: E402
from cluster import Cluster  # noqa: E402
from two_agents import model_file, options  # noqa: E402

PAGE, OTHERS = 64, 3
PLACES = (("one", "a3"), ("three", "a0,a1,a2"))
WHERE = {"memory": {"kv_spill_memory": "1GB"}, "disk": {"kv_spill_disk": "2GB"}}


def first_token(c, name, ids):
    """Seconds to it, and how many tokens were not computed."""
    status, body = c.request("POST", "/v1/completions", {"model": name, "prompt": ids, "max_tokens": 1, "temperature": 0, "ignore_eos": True}, timeout=600)
    assert status == 200, body
    return body["timings"]["waited_s"] + body["timings"]["prefill_s"], body["usage"]["prompt_tokens_details"]["cached_tokens"]


def spilled(c, name):
    return c.hpctl("describe", name)["spills"]


def read_back(c, name, o, draw):
    """Seconds anew and read back, and what the planner says of both at last."""
    whole = (o.tokens - 1) // PAGE * PAGE
    anew, again = [], []
    first_token(c, name, draw(o.tokens))
    for _ in range(o.repeat):
        before, ids = spilled(c, name)["pages"], draw(o.tokens)
        anew.append(first_token(c, name, ids)[0])
        for _ in range(OTHERS):  # which make it give way
            first_token(c, name, draw(o.tokens))
        c.wait("it is spilled", lambda: spilled(c, name)["pages"] > before, 60)
        took, cached = first_token(c, name, ids)
        assert cached == whole, (cached, whole, spilled(c, name))
        again.append(took)
    told = spilled(c, name)
    assert told["hits"] == o.repeat and told["failed"] == 0, told
    return statistics.median(anew), statistics.median(again), told["last_read_s"], told["last_compute_s"]


def main():
    o = options()
    model, chance, bounds = model_file(o.small), random.Random(1), []
    draw = lambda n: [chance.randrange(3, 8000) for _ in range(n)]  # noqa: E731
    for where, limits in WHERE.items():
        with Cluster(agents=4, cores=1, **limits) as c:
            for name, agents in PLACES:
                c.deploy(name, model, "--agents", agents, "--max-context", str(o.tokens + PAGE), "--max-sequences", "2")
                anew, again, read_s, compute_s = read_back(c, name, o, draw)
                print(f"{o.tokens} tokens, {name:5} agent{'s' if name != 'one' else ''}: anew {anew:.3f} s, read back from {where} {again:.3f} s: {again / anew:.3f} (1/{anew / again:.1f}); planned {read_s:.4f} of {compute_s:.3f} s", flush=True)
                bounds.append((f"{where}, {name}", again / anew, "<=", 0.9))
                c.hpctl("undeploy", name)
    print(f"{os.path.basename(model)}, median of {o.repeat}, load {os.getloadavg()[0]:.1f}")
    held("spill", *bounds)


if __name__ == "__main__":
    main()
