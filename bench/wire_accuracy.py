"""What it costs in accuracy that rows cross between stages in fewer bits: KL divergence and error of the logits over a text, against float32 rows, in float32 arithmetic. `bench/run wire_accuracy`; HP_BENCH_MODEL, HP_BENCH_TEXT choose others than the demo model and its text."""
import os
import sys
import tempfile

import numpy

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc")]

from cluster import Cluster, DEMO

MODEL = os.environ.get("HP_BENCH_MODEL", DEMO)
TEXT = os.environ.get("HP_BENCH_TEXT", "The red box holds a spoon. The blue box holds a kite. Nobody knows what the green box holds, and few have ever asked. " * 6)


def logits(c, *args):
    with tempfile.NamedTemporaryFile(suffix=".npy") as f:
        done = c.run("model", "logits", *args, "-o", f.name)
        assert done.returncode == 0, done.stderr
        return numpy.load(f.name)


def log_shares(rows):
    rows = rows.astype(numpy.float64)
    rows -= rows.max(axis=1, keepdims=True)
    return rows - numpy.log(numpy.exp(rows).sum(axis=1, keepdims=True))


def main():
    print(f"{os.path.basename(MODEL)}, --compute f32, against rows that cross as f32; load {os.getloadavg()[0]:.1f}")
    print(f"{'stages':>6} {'wire':>5} {'bytes':>6} {'KL, mean':>10} {'KL, most':>10} {'logits, most':>13} {'mean':>8} {'same token':>11}")
    for stages in (2, 3):
        with Cluster(agents=stages, cores=1) as c:
            ids = c.hpctl("model", "tokenize", MODEL, "--text", TEXT)["ids"][:200]
            agents = ",".join(f"a{i}" for i in range(stages))
            exact = None
            for wire, share in (("f32", 1), ("f16", 1 / 2), ("bf16", 1 / 2), ("q8", 9 / 32)):
                c.deploy(wire, MODEL, "--compute", "f32", "--agents", agents, "--wire", wire, "--prefix-cache", "off", "--max-context", "1024")
                rows = logits(c, "--deployment", wire, "--ids", ",".join(map(str, ids)))
                c.hpctl("undeploy", wire)
                exact = rows if exact is None else exact
                p, q = log_shares(exact), log_shares(rows)
                kl = (numpy.exp(p) * (p - q)).sum(axis=1)
                away = numpy.abs(rows - exact).max(axis=1) / numpy.abs(exact).max()
                print(f"{stages:6} {wire:>5} {share:6.3f} {kl.mean():10.2e} {kl.max():10.2e} {away.max():13.5f} {away.mean():8.5f} {(exact.argmax(1) == rows.argmax(1)).mean():11.3f}", flush=True)


main()
