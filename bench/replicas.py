#!/usr/bin/env python3
"""An agent is killed under an answer to a long prompt and started again: how long the stream pauses where prompt and answer are computed anew, and where their keys and values were copied to another deployment (deploy --replicate-kv).

    bench/replicas.py [--tokens 4096] [--repeat 5] [--small]

Two clusters of three one-core agents that differ in --replicate-kv alone take turns; a2 has the deployment that keeps the copies in both. --tokens is the context, of which the prompt is three quarters. Beside the whole pause stands what of it comes after the deployment serves again (the coordinator's own figures): the part that a copy can save.
Answers are compared with those of an undisturbed run by tests/proc/recovery_test.py, in float32."""
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
from cluster import Cluster  # noqa: E402
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


def pause(c, ids, answer, copied):
    """Seconds of the stream's pause, and of these those after the deployment served again; None where the answer ended before its agent was killed."""
    before = c.hpctl("describe", NAME)
    times = []
    reader = threading.Thread(target=stream, args=(c, ids, answer, times))
    reader.start()
    while reader.is_alive() and (not times or (copied and c.hpctl("describe", NAME)["replicas"]["copied"] == before["replicas"]["copied"])):
        time.sleep(0.01)
    at = time.monotonic()
    c.kill("a1")
    c.hpctl("local", "start", "--agent", "a1")
    reader.join()
    c.wait("it serves again", lambda: c.hpctl("describe", NAME)["state"] == "serving", 60)
    after = c.hpctl("describe", NAME)["losses"]
    if after["recovered"] == before["losses"]["recovered"] or times[-1] < at:
        return None
    return max(b - a for a, b in zip(times, times[1:])), after["last_pause_s"] - after["last_place_s"]


def main():
    sys.argv[1:1] = ["--tokens", "4096"]
    o = options()
    model, chance = model_file(o.small), random.Random(1)
    clusters, took = {}, {True: [], False: []}
    try:
        for copied in (True, False):
            c = clusters[copied] = Cluster(agents=3, cores=1).__enter__()
            wish = ["--replicate-kv", "256"] if copied else []
            c.deploy(NAME, model, "--agents", "a0,a1", "--max-context", str(o.tokens), "--prefix-cache", "off", *wish)
            c.deploy("spare", model, "--agents", "a2", "--max-context", str(o.tokens))
            c.hpctl("profile", "ls")
        for tries in range(4 * o.repeat):
            for copied, c in clusters.items():
                ids = [chance.randrange(3, 8000) for _ in range(o.tokens * 3 // 4)]
                one = pause(c, ids, o.tokens // 5, copied) if len(took[copied]) < o.repeat else None
                if one:
                    took[copied].append(one)
        told = clusters[True].hpctl("describe", NAME)
        assert min(map(len, took.values())) == o.repeat, took
        print(f"copies: {told['replicas']}; the last to fetch {told['prefix_peers']['last_fetch_s']:.3f} s, to compute {told['prefix_peers']['last_compute_s']:.3f} s as planned")
    finally:
        for c in clusters.values():
            c.__exit__(None, None, None)
    middle = {copied: [statistics.median(x) for x in zip(*took[copied])] for copied in took}
    for copied in (False, True):
        rows = took[copied]
        print(f"{'from its copy' if copied else 'computed anew'}: pause {middle[copied][0]:.2f} s ({min(r[0] for r in rows):.2f}-{max(r[0] for r in rows):.2f}), of these after it serves again {middle[copied][1]:.3f} s ({min(r[1] for r in rows):.3f}-{max(r[1] for r in rows):.3f})")
    print(f"{os.path.basename(model)}, prompts of {o.tokens * 3 // 4} tokens, median of {o.repeat}, load {os.getloadavg()[0]:.1f}")
    held("replicas", ("after it serves again, copied / computed", middle[True][1] / middle[False][1], "<=", 0.5))


if __name__ == "__main__":
    main()
