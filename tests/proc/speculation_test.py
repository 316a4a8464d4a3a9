"""Guesses of the next tokens, verified by the stages in one step: the same tokens as without, greedy and sampled, over one stage and three, of several
families; and numbers that say what they brought."""
import json
import os

from cluster import Cluster, DEMO, ROOT
from tap import main, skip, test

SHARED = os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared"))
FAMILIES = ("gemma3", "mixtral")  # windows, experts
TOKENS = 48
STORY = "The red box holds a spoon. The blue box holds a kite. "


def family(name):
    return os.path.join(SHARED, "golden-families", name, "model-f32.gguf")


def complete(c, model, ids, **fields):
    status, body = c.request("POST", "/v1/completions", {"model": model, "prompt": ids, "max_tokens": TOKENS, **fields})
    assert status == 200, (status, body)
    return body["choices"], body["usage"]["completion_tokens"]


def speculation(c, name):
    return c.hpctl("describe", name)["speculation"]


def same_tokens(c, model, ids, requests):
    """Over one stage and over three, with guesses and without; how many were right."""
    text = ",".join(map(str, ids))
    right = 0
    want = c.hpctl("model", "greedy", model, "--ids", text, "--tokens", str(TOKENS), "--compute", "f32")["ids"]
    c.deploy("off", model, "--compute", "f32", "--agents", "a0", "--speculate", "off")
    alone = [complete(c, "off", ids, **r) for r in requests]
    told = speculation(c, "off")
    assert told["mode"] == "off" and told["drafts"] == 0, told
    c.hpctl("undeploy", "off")
    for agents in ("a0", "a0,a1,a2"):
        c.deploy("on", model, "--compute", "f32", "--agents", agents, "--speculate", "lookup")
        got = c.hpctl("model", "greedy", "--deployment", "on", "--ids", text, "--tokens", str(TOKENS))["ids"]
        assert got == want, (model, agents, got, want)
        for r, was in zip(requests, alone):
            assert complete(c, "on", ids, **r) == was, (model, agents, r)
        right += speculation(c, "on")["accepted"]
        c.hpctl("undeploy", "on")
    return right


@test
def tokens_are_the_same_with_guesses_and_without():
    with Cluster(agents=3, cores=1) as c:
        ids = c.hpctl("model", "tokenize", DEMO, "--text", STORY * 3)["ids"]
        requests = ({"temperature": 0}, {"temperature": 0.4, "seed": 7}, {"temperature": 1, "top_p": 0.9, "top_k": 40, "seed": 8, "repetition_penalty": 1.1},
                    {"temperature": 0, "frequency_penalty": 0.5}, {"temperature": 0, "stop": ["kite", "box"]}, {"temperature": 0, "max_tokens": 5})
        right = same_tokens(c, DEMO, ids, requests)
        assert right > 20, right
        # Those that `auto` makes are told where people look.
        c.deploy("demo", DEMO, "--compute", "f32", "--agents", "a0,a1,a2")
        for _ in range(3):
            complete(c, "demo", ids * 3, temperature=0, ignore_eos=True)
        told = speculation(c, "demo")
        assert told["mode"] == "auto" and told["accepted"] > 0 and told["tokens_per_step"] > 1, told
        metrics = c.request("GET", "/metrics")[1]
        assert f'hp_draft_tokens_accepted_total{{deployment="demo"}} {told["accepted"]}' in metrics, metrics
        assert f"{told['accepted']} of {told['drafts']} guessed tokens were right" in c.run("describe", "demo").stdout
        failed = c.run("deploy", DEMO, "--name", "other", "--speculate", "perhaps")
        assert failed.returncode != 0 and "auto, off or lookup" in failed.stderr, failed


@test
def families_with_windows_and_experts_say_the_same():
    if not os.path.exists(family(FAMILIES[0])):
        skip("no models of families here")
    with Cluster(agents=3, cores=1) as c:
        right = 0
        for name in FAMILIES:
            ids = [3 + (i * i) % 11 for i in range(100)]
            right += same_tokens(c, family(name), ids, ({"temperature": 0, "ignore_eos": True}, {"temperature": 0.7, "seed": 3, "ignore_eos": True}))
        assert right > 20, right


main()
