"""As what keys and values are kept: q8_0 takes 34 bytes for 32 numbers, is told where people look, changes the logits a little, and is shared as others are."""
import tempfile

import numpy

from cluster import Cluster, DEMO
from tap import main, test


def logits(c, *args):
    with tempfile.NamedTemporaryFile(suffix=".npy") as f:
        done = c.run("model", "logits", *args, "-o", f.name)
        assert done.returncode == 0, done.stderr
        return numpy.load(f.name).astype(numpy.float64)


def divergence(exact, got):
    """Mean over positions of KL(exact, got), in nats."""
    exact, got = (x - numpy.logaddexp.reduce(x, axis=1, keepdims=True) for x in (exact, got))
    return float((numpy.exp(exact) * (exact - got)).sum(axis=1).mean())


@test
def keys_and_values_in_8_bits_cost_little_and_stages_agree_with_one_process():
    with Cluster(agents=2, cores=1) as c:
        ids = c.hpctl("model", "tokenize", DEMO, "--text", "The red box holds a spoon. The blue box holds a kite. " * 8 + "What is in it?")["ids"][:150]
        text = ",".join(map(str, ids))
        got = {}
        for kv in ("f32", "f16", "q8_0"):
            c.deploy(kv, DEMO, "--compute", "f32", "--agents", "a0,a1", "--kv", kv, "--max-sequences", "2")
            args = ("--ids", text, "--slice", "64")
            got[kv] = logits(c, "--deployment", kv, *args)
            described = c.hpctl("describe", kv)
            assert described["kv"] == kv and described["plan"]["kv"] == kv, described
            assert [d["kv"] for d in c.hpctl("ps") if d["name"] == kv] == [kv]
            tokens = c.hpctl("model", "greedy", "--deployment", kv, *args, "--tokens", "16")["ids"]
            assert tokens == c.hpctl("model", "greedy", DEMO, *args, "--compute", "f32", "--kv", kv, "--tokens", "16")["ids"], kv
            assert numpy.array_equal(got[kv], logits(c, DEMO, *args, "--compute", "f32", "--kv", kv)), kv
            c.hpctl("undeploy", kv)
        for kv, most in (("f16", 1e-5), ("q8_0", 2e-3)):
            away = divergence(got["f32"], got[kv])
            print(f"# {kv}: KL {away:.2e}")
            assert 0 < away < most, (kv, away)


@test
def a_second_turn_finds_what_is_kept_in_8_bits():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--kv", "q8_0", "--max-sequences", "2")
        ids = (c.hpctl("model", "tokenize", DEMO, "--text", "Once upon a time there was a cluster. ")["ids"] * 30)[:200]
        for n, cached in ((190, 0), (200, 189)):
            status, body = c.request("POST", "/v1/completions", {"model": "demo", "prompt": ids[:n], "temperature": 0, "max_tokens": 4})
            assert status == 200, body
            assert body["usage"]["prompt_tokens_details"]["cached_tokens"] >= cached, body["usage"]


@test
def what_is_no_format_of_keys_is_refused_by_name():
    with Cluster(agents=1, cores=1) as c:
        done = c.run("deploy", DEMO, "--name", "no", "--kv", "int4")
        assert done.returncode != 0 and "auto, f16, f32 or q8_0" in done.stderr, done.stderr


main()
