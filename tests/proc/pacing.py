"""Paced clusters for tests: agents that stand for devices of a cluster file, and a toy that stands for the profile's model."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile

from cluster import ROOT, Cluster

BLOCKS = 5


def profile():
    """An embedding, halves of five blocks and a head; `slow` takes thrice the time of `fast`, attention grows with the prefix."""
    slices, prefixes = [16, 64, 384], [0, 384]

    def table(scale, growth):
        return {"slice": slices, "prefix": prefixes, "seconds": [[scale * (0.002 + s * 1e-4 * (1 + growth * (p + s / 2) / 384)) for p in prefixes] for s in slices]}

    def layer(name, kind, params, state):
        return {"name": name, "class": kind, "param_bytes": params, "state_bytes_per_token": state, "output_bytes_per_token": 8192}

    halves = [layer(f"blk.{b}.{k}", k, 1e8, 16384 if k == "attn" else 0) for b in range(BLOCKS) for k in ("attn", "mlp")]
    latency = {kind: {"embed": table(scale * 0.01, 0), "attn": table(scale, 0.5), "mlp": table(scale * 1.2, 0), "head": table(scale * 0.05, 0)}
               for kind, scale in (("fast", 1), ("slow", 3))}
    return {"format": "hp-profile/1", "model": "stood-in-for", "batch": 4, "layers": [layer("embed", "embed", 1e8, 0), *halves, layer("head", "head", 1e8, 0)], "latency": latency}


EQUALS = {"format": "hp-cluster/1", "nodes": [
    {"name": name, "nics": [{"name": "e", "bandwidth_bytes_per_s": 1.2e8, "latency_s": 5e-5}], "devices": [{"name": "gpu0", "kind": "fast", "memory_bytes": 4e9}]} for name in ("one", "two", "three")]}
CLUSTER = {"format": "hp-cluster/1", "nodes": [
    {"name": "one", "device_link": {"bandwidth_bytes_per_s": 1e10, "latency_s": 2e-5}, "nics": [{"name": "e", "bandwidth_bytes_per_s": 1.2e8, "latency_s": 5e-5}],
     "devices": [{"name": "gpu0", "kind": "slow", "memory_bytes": 2e9}, {"name": "gpu1", "kind": "slow", "memory_bytes": 5e8}]},
    {"name": "two", "nics": [{"name": "e", "bandwidth_bytes_per_s": 1.2e8, "latency_s": 5e-5}], "devices": [{"name": "gpu0", "kind": "fast", "memory_bytes": 2e9}]}]}


@contextlib.contextmanager
def files(cluster=CLUSTER):
    with tempfile.TemporaryDirectory(prefix="hp-paced-") as folder:
        paths = {name: os.path.join(folder, name) for name in ("cluster.json", "profile.json", "toy.gguf", "plan.json", "trace.json", "picture.svg")}
        for name, value in (("cluster.json", cluster), ("profile.json", profile())):
            with open(paths[name], "w") as f:
                json.dump(value, f)
        subprocess.run([sys.executable, os.path.join(ROOT, "examples", "hpipe-testbed", "make_toy.py"), paths["profile.json"], paths["toy.gguf"]], check=True,
                       capture_output=True)
        yield paths


def paced(f):
    return Cluster(agents=3, pace=f["cluster.json"], profile=f["profile.json"])
