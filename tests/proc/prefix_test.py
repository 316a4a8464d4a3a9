"""Prompts that begin alike, through the API on real agents: shared, kept, given up for room, and never another token."""
import json
import os
import threading

from cluster import Cluster, DEMO, ROOT
from tap import main, test

with open(os.path.join(ROOT, "examples", "demo-model", "answers.json")) as f:
    ANSWERS = json.load(f)
STORY = "Once upon a time there was a little cluster that learned to answer. " * 4


def cached(body):
    return body["usage"]["prompt_tokens_details"]["cached_tokens"]


def complete(c, model, ids, **fields):
    status, body = c.request("POST", "/v1/completions", {"model": model, "prompt": ids, "temperature": 0, "ignore_eos": True, **fields})
    assert status == 200, (status, body)
    return body


def state(c, name="demo"):
    return c.hpctl("describe", name)["prefix_cache"]


@test
def a_second_turn_is_answered_as_without_and_computes_less():
    with Cluster(agents=3, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1,a2", "--compute", "f32", "--max-sequences", "4")
        c.deploy("plain", DEMO, "--agents", "a2,a0", "--compute", "f32", "--prefix-cache", "off", "--max-sequences", "4")
        turns = [{"role": "user", "content": STORY + ANSWERS[0][0]}]
        status, first = c.chat("demo", turns, max_tokens=40)
        assert status == 200 and cached(first) == 0, first
        turns += [first["choices"][0]["message"], {"role": "user", "content": ANSWERS[1][0]}]
        status, second = c.chat("demo", turns, max_tokens=40)
        assert status == 200 and cached(second) >= first["usage"]["prompt_tokens"] - 8, (first["usage"], second["usage"])
        _, alone = c.chat("plain", turns, max_tokens=40)
        assert cached(alone) == 0, alone
        assert second["choices"] == alone["choices"], (second, alone)
        # A stream says so with its usage, and figures are where they are looked for.
        s = c.stream("/v1/chat/completions", {"model": "demo", "messages": turns, "temperature": 0, "max_tokens": 4, "stream_options": {"include_usage": True}})
        usage = [e["usage"] for e in s.events() if e and e.get("usage")][-1]
        s.close()
        assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1, usage
        told = state(c)
        assert told["mode"] == "on" and told["hits"] == 2 and told["kept"] >= 1 and told["pages_cached"] > 0, told
        assert state(c, "plain")["mode"] == "off" and state(c, "plain")["kept"] == 0, state(c, "plain")
        metrics = c.request("GET", "/metrics")[1]
        assert 'hp_prefix_hits_total{deployment="demo"} 2' in metrics, metrics
        people = c.run("describe", "demo").stdout
        assert "2 hits of 3 requests" in people and " own (of one request), 0 shared, " in people and " swaps, " in people, people
        assert "the first one after loading" in people, people


@test
def a_common_prompt_is_stored_once():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--max-sequences", "8")
        ids = c.hpctl("model", "tokenize", DEMO, "--text", STORY)["ids"]
        common = (ids * 8)[:300]
        bodies = [None] * 24

        def ask(i):
            bodies[i] = complete(c, "demo", common + ids[i:i + 6], max_tokens=12)

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        computed = sum(b["usage"]["prompt_tokens"] - cached(b) for b in bodies)
        assert computed < 306 + 24 * 12, computed
        for i in (0, 7, 23):
            again = c.hpctl("model", "tokenize", DEMO, "--text", bodies[i]["choices"][0]["text"], "--no-special")
            assert bodies[i]["usage"]["completion_tokens"] == 12, (bodies[i], again)
        # What nobody shares with is what it would have been.
        c.hpctl("undeploy", "demo")
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--prefix-cache", "off")
        for i in (0, 7, 23):
            assert complete(c, "demo", common + ids[i:i + 6], max_tokens=12)["choices"] == bodies[i]["choices"], i


@test
def what_is_kept_makes_room_in_little_memory_and_nobody_is_refused():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--max-sequences", "2", "--max-context", "320")
        ids = c.hpctl("model", "tokenize", DEMO, "--text", STORY)["ids"]
        prompts = [((ids[k:] + ids) * 8)[:230] for k in range(8)]
        first = [complete(c, "demo", p, max_tokens=20) for p in prompts]
        told = state(c)
        assert told["evicted"] > 0 and told["pages_cached"] <= told["pages"] == 10, told
        assert told["pages_own"] == told["pages_shared"] == 0, told
        for p, body in reversed(list(zip(prompts, first))):
            assert complete(c, "demo", p, max_tokens=20)["choices"] == body["choices"]
        assert state(c)["hits"] > 0
        # A lost agent takes what was kept along.
        c.kill("a1")
        c.hpctl("local", "start", "--agent", "a1")
        c.wait("the deployment breaks", lambda: c.hpctl("describe", "demo")["generation"] > 1)
        c.wait_serving("demo")
        assert state(c)["kept"] == 0, state(c)
        body = complete(c, "demo", prompts[0], max_tokens=20)
        assert cached(body) == 0 and body["choices"] == first[0]["choices"], body


main()
