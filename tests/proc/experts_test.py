"""Mixtures of experts over agents whose memory holds no whole block: the planner puts attention and experts of one block on different agents."""
import json
import os
import subprocess
import sys

from cluster import Cluster, ROOT
from tap import main, skip, test

SHARED = os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared"))
MIXTRAL = os.path.join(SHARED, "golden-families", "mixtral")
MAKE = os.path.join(ROOT, "bench", "make_random_model.py")


def mixture_make(folder, mlp=1024):
    """Two blocks of 0.8 MB of attention and 25.2 MB of experts (mlp 1024), of which a token takes a quarter."""
    out = os.path.join(folder, "mixture.gguf")
    shape = {"blocks": 2, "width": 256, "heads": 8, "kv-heads": 4, "mlp": mlp, "vocabulary": 600, "context": 2048, "type": "f32", "experts": 8, "experts-used": 2}
    subprocess.run([sys.executable, MAKE, out, *(w for k, v in shape.items() for w in ("--" + k, str(v)))], check=True, stdout=subprocess.DEVNULL)
    return out


@test
def a_block_that_fits_no_agent_is_cut_between_attention_and_experts():
    with Cluster(agents=4, cores=1, memory="64MB") as c:
        model = mixture_make(c.folder)
        text = ",".join(str(5 + i % 500) for i in range(90))
        here = c.hpctl("model", "greedy", model, "--ids", text, "--tokens", "12", "--compute", "f32")["ids"]
        d = c.deploy("mixture", model, "--compute", "f32", "--max-context", "2048", "--max-sequences", "16")
        cuts = [s["first_layer"] for s in d["stages"]]
        layers = [layer["class"] for layer in c.hpctl("model", "describe", model)["layers"]]
        assert any(layers[cut] == "moe" for cut in cuts), d["stages"]
        assert all(s["memory_bytes"] < 64e6 for s in d["stages"]), d["stages"]
        for size in (1, 7, 90):
            got = c.hpctl("model", "greedy", "--deployment", "mixture", "--ids", text, "--tokens", "12", "--slice", str(size))["ids"]
            assert got == here, (size, got, here)


def ids_of(c, model, ids, n):
    return c.hpctl("model", "greedy", *model, "--ids", ",".join(map(str, ids)), "--tokens", str(n))["ids"]


@test
def a_block_whose_experts_fit_no_agent_is_divided_among_several():
    with Cluster(agents=5, cores=1, memory="64MB") as c:
        model = mixture_make(c.folder, mlp=1280)
        ids = [5 + i % 500 for i in range(90)]
        here = ids_of(c, (model, "--compute", "f32"), ids, 12)
        d = c.deploy("mixture", model, "--compute", "f32", "--max-context", "256", "--max-sequences", "1", "--slice", "64")
        assert d["expert_groups"] > 1 and len(d["stages"]) >= 3, d["stages"]
        assert all(s["memory_bytes"] < 64e6 for s in d["stages"]), d["stages"]
        for size in (1, 7, 64):
            assert ids_of(c, ("--deployment", "mixture", "--slice", str(size)), ids, 12) == here, size
        # The coordinator that comes next numbers the layers as this one did, and the agents' stages are still theirs.
        c.kill("coordinator")
        c.hpctl("local", "start", "--coordinator")
        c.wait_serving("mixture")
        assert c.hpctl("describe", "mixture")["expert_groups"] == d["expert_groups"]
        assert ids_of(c, ("--deployment", "mixture"), ids, 12) == here


@test
def a_profile_counts_the_experts_and_begins_with_slices_that_wake_few():
    with Cluster(agents=1, cores=1) as c:
        model = mixture_make(c.folder)
        file = os.path.join(c.folder, "profile.json")
        done = c.run("profile", "model", model, "--budget", "3", "-o", file)
        assert done.returncode == 0, done.stderr
        with open(file) as f:
            profile = json.load(f)
        mixtures = [layer for layer in profile["layers"] if layer["class"] == "moe"]
        assert [layer["experts"] for layer in mixtures] == [{"count": 8, "used": 2, "bytes": 3 * 8 * 256 * 1024 * 4}] * 2, mixtures
        table = next(iter(profile["latency"].values()))["moe"]
        assert {1, 2, 4, 8, 16} <= set(table["slice"]) and table["prefix"] == [0], table
        # 8 tokens wake nearly all experts, one wakes a quarter of them.
        assert table["seconds"][table["slice"].index(8)][0] > 1.2 * table["seconds"][0][0], table


@test
def a_golden_mixture_answers_right_with_every_block_cut():
    if not os.path.exists(MIXTRAL):
        skip("../shared/golden-families is not here")
    with open(os.path.join(MIXTRAL, "expected.json")) as f:
        prompts = json.load(f)["prompts"]
    with Cluster(agents=3, cores=1) as c:
        c.deploy("mixtral", os.path.join(MIXTRAL, "model-f32.gguf"), "--compute", "f32", "--layers", "0-1:a0,2-3:a1,4-7:a2")
        for p in prompts:
            n = len(p["greedy_ids"])
            got = c.hpctl("model", "greedy", "--deployment", "mixtral", "--ids", ",".join(map(str, p["ids"])), "--tokens", str(n))["ids"]
            assert got == p["greedy_ids"], p["text"]


main()
