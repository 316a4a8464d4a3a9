"""Several answers to one prompt: computed once, each what it would be alone, interleaved in a stream."""

from cluster import Cluster, DEMO
from tap import main, test

STORY = "Once upon a time there was a little cluster that learned to answer. "


def ask(c, fields, path="/v1/completions"):
    status, body = c.request("POST", path, dict({"model": "demo", "max_tokens": 16, "ignore_eos": True}, **fields))
    assert status == 200, (status, body)
    return body


def hits(c):
    return c.hpctl("describe", "demo")["prefix_cache"]["hits"]


@test
def each_choice_is_what_its_seed_alone_would_give():
    with Cluster(agents=2, cores=1) as c:
        for mode, repeated in (("on", 6), ("off", 1)):
            c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--prefix-cache", mode, "--max-sequences", "4")
            prompt = {"prompt": STORY * repeated, "temperature": 1.2}
            body = ask(c, {**prompt, "seed": 7, "n": 6})
            assert [x["index"] for x in body["choices"]] == list(range(6)), body
            texts = [x["text"] for x in body["choices"]]
            assert len(set(texts)) > 1, texts
            usage = body["usage"]
            assert usage["completion_tokens"] == 6 * 16 and usage["total_tokens"] == usage["prompt_tokens"] + 6 * 16, usage
            assert usage["prompt_tokens_details"]["cached_tokens"] == 0, usage
            assert hits(c) == 5, hits(c)
            c.hpctl("undeploy", "demo")
            c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--prefix-cache", "off", "--max-sequences", "4")
            for i in (0, 1, 5):
                alone = ask(c, {**prompt, "seed": 7 + i})
                assert alone["choices"][0]["text"] == texts[i] and alone["usage"]["prompt_tokens"] == usage["prompt_tokens"], (i, alone, texts)
            c.hpctl("undeploy", "demo")


def mean(choice):
    logprobs = choice["logprobs"]["token_logprobs"]
    return sum(logprobs) / len(logprobs)


@test
def of_more_answers_than_are_given_the_likeliest_are():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO, "--compute", "f32")
        fields = {"prompt": [STORY, STORY + "Then"], "temperature": 1.2, "seed": 7}
        every = ask(c, {**fields, "n": 6, "logprobs": 0})
        wanted = []
        for prompt in (0, 1):
            made = every["choices"][6 * prompt:6 * prompt + 6]
            wanted += [x["text"] for x in sorted(made, key=mean, reverse=True)[:2]]
        for more in ({}, {"logprobs": 0}):
            best = ask(c, {**fields, "n": 2, "best_of": 6, **more})
            assert [x["text"] for x in best["choices"]] == wanted and [x["index"] for x in best["choices"]] == [0, 1, 2, 3], (best, every)
            assert best["usage"] == every["usage"] and all(("logprobs" in more) == bool(x["logprobs"]) for x in best["choices"]), best
        one = ask(c, {"messages": [{"role": "user", "content": STORY}], "temperature": 1.2, "seed": 7, "best_of": 4}, "/v1/chat/completions")
        assert len(one["choices"]) == 1 and one["usage"]["completion_tokens"] == 4 * 16, one


@test
def a_stream_names_the_choice_of_every_piece():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO, "--compute", "f32")
        fields = {"model": "demo", "messages": [{"role": "user", "content": STORY}], "temperature": 1, "seed": 3, "n": 4, "max_tokens": 12, "ignore_eos": True}
        whole = ask(c, fields, "/v1/chat/completions")
        s = c.stream("/v1/chat/completions", dict(fields, stream_options={"include_usage": True}))
        events = [e for e in s.events() if e]
        s.close()
        texts, ends = [""] * 4, {}
        for e in events:
            for x in e["choices"]:
                texts[x["index"]] += x["delta"].get("content", "")
                if x["finish_reason"]:
                    assert x["index"] not in ends, events
                    ends[x["index"]] = x["finish_reason"]
        assert texts == [x["message"]["content"] for x in whole["choices"]], (texts, whole)
        assert ends == {x["index"]: x["finish_reason"] for x in whole["choices"]}, (ends, whole)
        assert [e["usage"]["completion_tokens"] for e in events if e.get("usage")] == [4 * 12], events[-1]
        # One that stops early ends alone.
        stop = texts[0][2:6]
        body = ask(c, {**fields, "stop": [stop]}, "/v1/chat/completions")
        assert all(stop not in x["message"]["content"] for x in body["choices"]), body
        assert body["choices"][0]["finish_reason"] == "stop", body


@test
def as_many_as_there_may_be_come_and_go_with_their_client():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO, "--max-sequences", "8")
        body = ask(c, {"prompt": STORY * 4, "temperature": 1, "n": 128, "max_tokens": 4})
        assert len(body["choices"]) == 128 and body["usage"]["completion_tokens"] == 512, body["usage"]
        before = c.sequences_opened()
        s = c.stream("/v1/completions", {"model": "demo", "prompt": STORY, "n": 100, "ignore_eos": True})
        next(s.events())
        s.close()
        c.wait("the end of what its client left", lambda: (lambda d: d["sequences_active"] + d["sequences_waiting"] == 0)(c.hpctl("describe", "demo")))
        # None of those that waited was let in where the others made room, only to leave, too.
        assert c.sequences_opened() - before <= 8, c.sequences_opened() - before


main()
