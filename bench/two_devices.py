#!/usr/bin/env python3
"""An agent of two devices (two halves of a box) against two agents of one half each: the same model, cut and cores, interleaved, medians.

    bench/two_devices.py [--tokens 2048] [--repeat 5] [--small]

Between the two agents a slice goes over the data channel; within the one it is handed over in the process. Prints the time to the first token
of a long prompt, the time of a decoded token, and the ratios: below 1 the two devices are faster."""
import os
import random
import statistics
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc"), os.path.dirname(os.path.abspath(__file__))]
from cluster import BUILD, Cluster  # noqa: E402
from two_agents import model_file, options  # noqa: E402

DECODED = 64


def times(c, name, ids):
    """Seconds to the first token, and of each after it."""
    body = {"model": name, "prompt": ids, "max_tokens": DECODED, "temperature": 0, "ignore_eos": True}
    status, body = c.request("POST", "/v1/completions", body, timeout=600)
    assert status == 200, body
    return body["timings"]["prefill_s"], body["timings"]["decode_s"] / (DECODED - 1)


def start(c, name, *args):
    """An agent of this script's own session: the system shares cores out by session first, and all agents here are to get the same."""
    folder = os.path.join(c.folder, name)
    os.makedirs(folder)
    token, control = c.hpctl("node", "token", "create")["token"], c.hpctl("context", "ls")[0]["control"]
    agent = subprocess.Popen([os.path.join(BUILD, "hp-agent"), "--join", control, "--token", token, "--name", name, "--dir", folder, "--network", "lo", "--memory", "4GiB", *args],
                             stdout=subprocess.DEVNULL, stderr=open(os.path.join(folder, "log"), "w"))
    c.wait(f"{name} is ready", lambda: c.member(name) == "ready")
    return agent


def main():
    o = options()
    model = model_file(o.small)
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        sys.exit("this benchmark needs two cores")
    chance = random.Random(1)
    prompts = [[chance.randrange(3, 8000) for _ in range(o.tokens)] for _ in range(o.repeat + 1)]
    prefill, decode = {"agents": [], "devices": []}, {"agents": [], "devices": []}
    with Cluster(agents=1, cores=1) as c:
        agents = []
        try:
            agents += [start(c, f"half{core}", "--cores", str(core)) for core in cores]
            agents += [start(c, "pair", *(part for core in cores for part in ("--device", f"cpu:{core}")))]
            context = str(o.tokens + DECODED + 64)
            stages = c.hpctl("deploy", model, "--name", "agents", "--agents", ",".join(f"half{core}" for core in cores), "--max-context", context, "--prefix-cache", "off", timeout=600)["stages"]
            layers = ",".join(f"{s['first_layer']}-{s['last_layer']}:pair/cpu{i}" for i, s in enumerate(stages))
            c.hpctl("deploy", model, "--name", "devices", "--layers", layers, "--max-context", context, "--prefix-cache", "off", timeout=600)
            for turn, ids in enumerate(prompts):
                order = ("agents", "devices") if turn % 2 else ("devices", "agents")
                took = {name: times(c, name, ids) for name in order}
                for name in order if turn else ():  # the first one warms up
                    prefill[name].append(took[name][0]), decode[name].append(took[name][1])
                print(f"  {turn or 'warm-up'}: " + ", ".join(f"two {n} {took[n][0]:.3f} s and {took[n][1] * 1e3:.2f} ms a token" for n in sorted(took)), flush=True)
        finally:
            for agent in agents:
                agent.terminate()
            for agent in agents:
                agent.wait()
    p, d = ({n: statistics.median(v[n]) for n in v} for v in (prefill, decode))
    print(f"{o.tokens} tokens, {os.path.basename(model)}, median of {o.repeat}, interleaved; load {os.getloadavg()[0]:.1f}:")
    print(f"  two agents, one core each              {p['agents']:8.3f} s to the first token, {d['agents'] * 1e3:8.2f} ms for each after it")
    print(f"  one agent, two devices of a core each  {p['devices']:8.3f} s                     {d['devices'] * 1e3:8.2f} ms")
    print(f"  ratio                                  {p['devices'] / p['agents']:8.3f}                       {d['devices'] / d['agents']:8.3f}")


main()
