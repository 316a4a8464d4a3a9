"""The first whole: a coordinator and agents on loopback answer prompts. Also what the sanitizers run."""
import json
import os
import sys

from cluster import Cluster, DEMO, ROOT
from tap import main, test

with open(os.path.join(ROOT, "examples", "demo-model", "answers.json")) as f:
    ANSWERS = json.load(f)


@test
def three_agents_answer_as_the_model_was_taught():
    with Cluster(agents=3, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1,a2", "--compute", "f32")
        for question, answer in ANSWERS[:12]:
            got = c.answer("demo", question, max_tokens=60)
            assert got == answer, (question, got, answer)


@test
def a_stream_has_role_deltas_reason_usage_and_done():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        s = c.stream("/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": ANSWERS[0][0]}], "temperature": 0,
                                              "stream_options": {"include_usage": True}})
        events = list(s.events())
        s.close()
        assert s.status == 200 and events[-1] is None, events[-3:]
        assert events[0]["choices"][0]["delta"]["role"] == "assistant"
        text = "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1] if e["choices"])
        assert text == ANSWERS[0][1], text
        assert [e["choices"][0]["finish_reason"] for e in events[:-1] if e["choices"]][-1] == "stop"
        usage = events[-2]["usage"]
        assert usage["completion_tokens"] > 3 and usage["total_tokens"] == usage["completion_tokens"] + usage["prompt_tokens"], usage


@test
def a_stream_goes_on_when_a_killed_agent_comes_back():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        s = c.stream("/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0, "max_tokens": 400, "ignore_eos": True})
        events = s.events()
        for _ in range(5):
            next(events)
        c.kill("a1")
        c.hpctl("local", "start", "--agent", "a1")
        rest = list(events)
        assert rest[-1] is None and rest[-2]["choices"][0]["finish_reason"] == "length", rest[-3:]
        s.close()
        c.wait_serving("demo")
        assert c.answer("demo", ANSWERS[0][0], max_tokens=60) == ANSWERS[0][1]


@test
def a_restarted_coordinator_finds_its_agents_and_loads_nothing_again():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        before = [a["pid"] for a in c.local()["agents"]]
        c.kill("coordinator")
        c.hpctl("local", "start", "--coordinator")
        c.wait_serving("demo")
        assert [a["pid"] for a in c.local()["agents"]] == before
        assert c.answer("demo", ANSWERS[0][0], max_tokens=60) == ANSWERS[0][1]


main()
