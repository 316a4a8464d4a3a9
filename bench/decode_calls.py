#!/usr/bin/env python3
"""What a decode step costs the middle one of three agents beside its computing: sleeps of its threads and system calls for each token of one stream.

    bench/decode_calls.py [--tokens 400] [--data auto|ucx|tcp ...]

Sleeps are voluntary context switches (/proc/PID/task/*/status). System calls are counted by strace, in a run of their own, since strace slows what it counts; without strace
they are left out. What the agent does anyway (heartbeats, signs of life) is counted over as long a silence, and printed beside."""
import argparse
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc")]
from cluster import Cluster, DEMO  # noqa: E402


SETTLE_S = 4  # links are measured when a cluster is young


def sleeps(pid):
    """Voluntary context switches of each thread, by name."""
    found = {}
    for path in glob.glob(f"/proc/{pid}/task/*/status"):
        try:
            with open(path) as f:
                text = f.read()
        except FileNotFoundError:
            continue
        name = re.search(r"^Name:\s*(\S+)", text, re.M).group(1)
        found[name] = found.get(name, 0) + int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", text, re.M).group(1))
    return found


class Strace:
    """Counts a process's system calls between entering and leaving; `calls` is {name: count}."""

    def __init__(self, pid):
        self.pid = pid
        self.calls = {}

    def __enter__(self):
        self.out = tempfile.NamedTemporaryFile("r", suffix=".strace")
        self.child = subprocess.Popen(["strace", "-c", "-f", "-o", self.out.name, "-p", str(self.pid)], stderr=subprocess.PIPE, text=True)
        self.child.stderr.readline()  # "Process N attached"
        time.sleep(0.2)
        return self

    def __exit__(self, *_):
        self.child.send_signal(signal.SIGINT)
        self.child.wait(timeout=20)
        for line in self.out.read().splitlines():
            row = line.split()
            if len(row) >= 5 and row[3].isdigit() and row[-1] != "total":
                self.calls[row[-1]] = int(row[3])


def can_trace():
    return shutil.which("strace") and subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


def stream(c, tokens):
    """One answer of so many tokens: seconds from the first token to the last, and how many there were."""
    s = c.stream("/v1/completions", {"model": "demo", "prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                                     "stream_options": {"include_usage": True}}, timeout=240)
    events = s.events()
    next(events)
    started = time.monotonic()
    rest = [e for e in events if e]
    s.close()
    return time.monotonic() - started, rest[-1]["usage"]["completion_tokens"]


def measure(tokens, **options):
    """What the middle agent of three does for each token: {tokens_per_s, sleeps: {thread: n}, calls: {name: n} or None, and idle_calls, idle_sleeps of as long a silence}."""
    with Cluster(agents=3, cores=1, **options) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1,a2", "--compute", "f32", "--speculate", "off")
        pid = c.agent("a1")["pid"]
        stream(c, 16)
        time.sleep(SETTLE_S)
        before = sleeps(pid)
        seconds, n = stream(c, tokens)
        after = sleeps(pid)
        found = {"tokens_per_s": n / seconds, "sleeps": {k: (after[k] - before.get(k, 0)) / n for k in after}, "calls": None}
        before = sleeps(pid)
        time.sleep(seconds)
        after = sleeps(pid)
        found["idle_sleeps"] = sum(after[k] - before.get(k, 0) for k in after) / n
        if can_trace():
            with Strace(pid) as trace:
                seconds, n = stream(c, tokens)
            found["calls"] = {k: v / n for k, v in trace.calls.items()}
            with Strace(pid) as trace:
                time.sleep(seconds)
            found["idle_calls"] = sum(trace.calls.values()) / n
        return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--data", nargs="*", default=["ucx", "tcp"])
    o = parser.parse_args()
    print(f"the middle one of three agents, one stream of {o.tokens} tokens, load {os.getloadavg()[0]:.1f}; for each token:")
    for kind in o.data:
        f = measure(o.tokens, data=kind)
        parts = ", ".join(f"{name} {n:.2f}" for name, n in sorted(f["sleeps"].items(), key=lambda x: -x[1]) if n >= 0.01)
        print(f"  {kind}: {sum(f['sleeps'].values()):.2f} sleeps ({parts}; {f['idle_sleeps']:.2f} in as long a silence), {f['tokens_per_s']:.0f} tokens/s")
        if f["calls"] is None:
            print("       system calls not counted: strace is missing, or may not trace here")
            continue
        parts = ", ".join(f"{name} {n:.2f}" for name, n in sorted(f["calls"].items(), key=lambda x: -x[1]) if n >= 0.05)
        print(f"       {sum(f['calls'].values()):.2f} system calls ({parts}; {f['idle_calls']:.2f} in as long a silence)")


if __name__ == "__main__":
    main()
