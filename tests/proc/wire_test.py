"""As what activations cross between stages: f16 and bf16 are half the bytes of f32, q8 is 9/32 of them, the logits stay within a fraction of a per cent, and the tokens are compared."""
# Waits: for slow links.
import os
import tempfile
import time

import numpy

from cluster import Cluster, DEMO, SCALE
from tap import main, test


def logits(c, *args):
    with tempfile.NamedTemporaryFile(suffix=".npy") as f:
        done = c.run("model", "logits", *args, "-o", f.name)
        assert done.returncode == 0, done.stderr
        return numpy.load(f.name)


def sent_bytes(c, agent):
    """Payload that an agent has sent over the data channel, as of a heartbeat that is younger than this call."""
    time.sleep(0.1)
    last, since = -1, time.monotonic()
    while time.monotonic() < since + 20 * SCALE:
        now = c.hpctl("node", "describe", agent)["data_sent_bytes"]
        if now == last:
            return now
        last = now
        time.sleep(2.5)
    raise AssertionError("the agent goes on sending")


def rows_sent(c, agent, ask):
    before = sent_bytes(c, agent)
    out = ask()
    return out, sent_bytes(c, agent) - before


@test
def fewer_bytes_cross_as_f16_and_q8_and_the_logits_hardly_change():
    with Cluster(agents=2, cores=1) as c:
        ids = c.hpctl("model", "tokenize", DEMO, "--text", "The red box holds a spoon. The blue box holds a kite. " * 8 + "What is in it?")["ids"][:150]
        text = ",".join(map(str, ids))
        got = {}
        for wire in ("f32", "f16", "bf16", "q8"):
            c.deploy(wire, DEMO, "--compute", "f32", "--agents", "a0,a1", "--wire", wire)
            args = ("--deployment", wire, "--ids", text, "--slice", "64")
            rows, sent = rows_sent(c, "a0", lambda: logits(c, *args))
            tokens = c.hpctl("model", "greedy", *args, "--tokens", "24")["ids"]
            described = c.hpctl("describe", wire)
            assert described["wire"] == wire, described
            assert described["plan"]["wire"] == wire, described["plan"]
            assert described["plan"]["wire_why"] == "as was asked" and ("nothing" in described["plan"]["wire_costs"]) == (wire == "f32"), described["plan"]
            assert [d["wire"] for d in c.hpctl("ps") if d["name"] == wire] == [wire]
            got[wire] = (rows, sent, tokens)
            c.hpctl("undeploy", wire)
        exact, all_sent, tokens = got["f32"]
        largest = float(numpy.abs(exact).max())
        tables = 24 * -(-len(ids) // 64)  # one run a slice
        for wire, most, share in (("f16", 0.003, 1 / 2), ("bf16", 0.03, 1 / 2), ("q8", 0.03, 9 / 32)):
            rows, sent, own = got[wire]
            away = float(numpy.abs(rows - exact).max()) / largest
            same = sum(a == b for a, b in zip(own, tokens))
            print(f"# {wire}: {sent} of {all_sent} bytes, logits {away:.5f} of the largest away, {same} of {len(tokens)} greedy tokens the same")
            assert sent - tables == share * (all_sent - tables), f"{wire}: {sent} bytes where f32 takes {all_sent}"
            assert 0 < away <= most, f"{wire}: logits are {away} of the largest away"
            assert wire != "f16" or own == tokens, f"{wire}: {own}, with f32 {tokens}"


@test
def what_is_no_wire_is_refused_by_name():
    with Cluster(agents=1, cores=1) as c:
        done = c.run("deploy", DEMO, "--name", "no", "--wire", "int8")
        assert done.returncode != 0 and "f32, f16, bf16, q8 or auto" in done.stderr, done.stderr


main()
