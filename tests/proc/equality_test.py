"""One prompt, many cuts, and many prompts: stages and slices change the speed, never the tokens, and the logits by less than 1e-5 of the largest (float32)."""
import concurrent.futures
import os
import tempfile

import numpy

from cluster import Cluster, DEMO
from tap import main, test


def logits(c, *args):
    with tempfile.NamedTemporaryFile(suffix=".npy") as f:
        done = c.run("model", "logits", *args, "-o", f.name)
        assert done.returncode == 0, done.stderr
        return numpy.load(f.name)


def close(a, b):
    return a.shape == b.shape and float(numpy.abs(a - b).max()) <= 1e-5 * float(numpy.abs(b).max())


@test
def stages_and_slices_change_nothing():
    with Cluster(agents=5, cores=1) as c:
        ids = c.hpctl("model", "tokenize", DEMO, "--text", "<|im_start|>user\nThe red box holds a spoon. The blue box holds a kite. " * 8 + "What is in it?")["ids"][:150]
        text = ",".join(map(str, ids))
        whole = logits(c, DEMO, "--ids", text, "--compute", "f32")
        tokens = c.hpctl("model", "greedy", DEMO, "--ids", text, "--tokens", "24", "--compute", "f32")["ids"]
        for stages in (1, 2, 3, 5):
            for size in (1, 7, 64, len(ids)):
                args = (DEMO, "--ids", text, "--compute", "f32", "--stages", str(stages), "--slice", str(size))
                assert close(logits(c, *args), whole), f"in one process: {stages} stages, slices of {size}"
                got = c.hpctl("model", "greedy", *args, "--tokens", "24")["ids"]
                assert got == tokens, f"in one process: {stages} stages, slices of {size}: {got} {tokens}"
        for stages in (1, 2, 3, 5):
            name = f"cut{stages}"
            c.deploy(name, DEMO, "--compute", "f32", "--agents", ",".join(f"a{i}" for i in range(stages)))
            for size in (1, 7, 64, len(ids)):
                args = ("--deployment", name, "--ids", text, "--slice", str(size))
                assert close(logits(c, *args), whole), f"on agents: {stages} stages, slices of {size}"
                got = c.hpctl("model", "greedy", *args, "--tokens", "24")["ids"]
                assert got == tokens, f"on agents: {stages} stages, slices of {size}: {got} {tokens}"
            c.hpctl("undeploy", name)


@test
def prompts_that_are_read_together_have_the_tokens_of_each_alone():
    def ask(c, i):
        body = {"model": "demo", "prompt": [3 + (7 * i + k) % 90 for k in range(4 + 2 * i)], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        status, answer = c.request("POST", "/v1/completions", body)
        assert status == 200, answer
        return answer["choices"][0]["text"]

    with Cluster(agents=2, cores=1) as c:
        for agents in ("a0", "a0,a1"):
            c.deploy("demo", DEMO, "--compute", "f32", "--agents", agents, "--prefix-cache", "off")
            alone = [ask(c, i) for i in range(16)]
            for _ in range(3):
                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    together = list(pool.map(lambda i: ask(c, i), range(16)))
                assert together == alone, (agents, together, alone)
            c.hpctl("undeploy", "demo")


main()
