"""The coordinator is killed under streams: agents go on, the next coordinator takes over, and clients read on where they were."""
import json
import os
import random
import statistics
import time

from cluster import SCALE, Cluster, DEMO
from resuming import SECRET, Broken, Reader, Reply, keyed
from tap import main, test

KILLS = int(os.environ.get("HP_KILLS", "20"))
STORY = {"model": "demo", "prompt": "Tell me a story.", "temperature": 0, "ignore_eos": True, "max_tokens": 300}
DRAWN = dict(STORY, temperature=1.0, seed=7)


def answered(c, body):
    status, answer = c.request("POST", "/v1/completions", body, keyed({"Content-Type": "application/json"}))
    assert status == 200, answer
    return answer["choices"][0]


def whole(c, body):
    return answered(c, body)["text"]


def finish(readers, texts):
    for r in readers:
        r.join(150 * SCALE)
        assert not r.is_alive(), r.text
    for r, text in zip(readers, texts):
        assert r.failure is None, r.failure
        assert r.text == text, f"another answer: {r.text[-60:]!r} for {text[-60:]!r}"


def metric(c, name):
    text = c.request("GET", "/metrics", headers=keyed({"Accept": "*/*"}))[1]
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


def api_keys_tell_answers_apart(c):
    """Also one that is made anew under the name of another."""
    drawn = dict(STORY, temperature=1.0, max_tokens=30)

    def ask(secret, method="POST", path="/v1/completions", body=drawn):
        SECRET[:] = [secret]
        try:
            return Reply(c.port, method, path, body, Idempotency_Key="same")
        finally:
            SECRET.clear()

    one, two = (c.hpctl("key", "create", name)["key"] for name in ("one", "two"))
    first = ask(one).body()
    assert ask(one).body() == first
    c.hpctl("key", "rm", "one")
    for other in (two, c.hpctl("key", "create", "one")["key"]):
        answer = ask(other).body()
        assert answer["id"] != first["id"] and answer["choices"][0]["text"] != first["choices"][0]["text"], (first, answer)
        assert ask(other, "GET", f"/v1/streams/{first['id']}", None).status == 404


@test
def a_key_gives_the_same_answer_whoever_reads_it_and_from_where():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        text = whole(c, STORY)
        body = dict(STORY, stream=True)
        # a client that hangs up and comes back behind what it has
        first = Reply(c.port, "POST", "/v1/completions", body, Idempotency_Key="k1")
        name = first.r.getheader("Stream-Id")
        begun, last = "", None
        for last, data in first.events():
            begun += json.loads(data)["choices"][0]["text"]
            if len(begun) > 60:
                break
        first.close()
        rest = list(Reply(c.port, "POST", "/v1/completions", body, Idempotency_Key="k1", Last_Event_ID=last).events())
        said = "".join(x["text"] for _, d in rest[:-1] for x in json.loads(d)["choices"])
        assert begun + said == text and rest[-1][1] == "[DONE]", (begun, said, text)
        assert all(json.loads(d)["id"] == name for _, d in rest[:-1])
        # behind a place that it has not, it begins anew
        for nowhere in ("300000", "301", "5.5", "-1"):
            anew = Reply(c.port, "GET", f"/v1/streams/{name}", Last_Event_ID=nowhere)
            assert "".join(x["text"] for _, d in list(anew.events())[:-1] for x in json.loads(d)["choices"]) == text, nowhere
        # from its beginning, by its name, and once more by its key; computed once
        before = metric(c, "hp_output_tokens_total")
        for reply in (Reply(c.port, "GET", f"/v1/streams/{name}"), Reply(c.port, "POST", "/v1/completions", body, Idempotency_Key="k1")):
            assert reply.status == 200
            assert "".join(x["text"] for _, d in list(reply.events())[:-1] for x in json.loads(d)["choices"]) == text
        assert metric(c, "hp_output_tokens_total") == before
        # the other APIs whose streams are events
        said = [{"role": "user", "content": "Tell me a story."}]
        for path, asked, text_of in (
                ("/v1/chat/completions", {"messages": said}, lambda e: "".join(x["delta"].get("content") or "" for x in e.get("choices", []))),
                ("/v1/messages", {"messages": said}, lambda e: e.get("delta", {}).get("text", "")),
                ("/completion", {"prompt": "Tell me a story.", "ignore_eos": True}, lambda e: e["content"]),
                ("/v1/responses", {"input": "Tell me a story."}, lambda e: e["delta"] if e["type"] == "response.output_text.delta" else "")):
            limit = "max_output_tokens" if path.endswith("responses") else "max_tokens"
            asked = asked | {"model": "demo", "stream": True, "temperature": 0, limit: 40}
            events = list(Reply(c.port, "POST", path, asked, Idempotency_Key=path).all_events())
            texts = [(n, text_of(json.loads(d))) for n, d in events if d != "[DONE]"]
            assert len({n for n, _ in texts}) > 5, events
            at = next(i for i, (n, t) in enumerate(texts) if i > len(texts) // 2 and n and t)
            rest = [text_of(json.loads(d)) for _, d in Reply(c.port, "POST", path, asked, Idempotency_Key=path, Last_Event_ID=texts[at][0]).all_events() if d != "[DONE]"]
            assert "".join(rest) == "".join(t for _, t in texts[at + 1:]) != "", (path, rest, texts)
        # a second reader takes it over
        slow = Reply(c.port, "POST", "/v1/completions", dict(body, max_tokens=400), Idempotency_Key="k2")
        events = slow.events()
        next(events)
        again = Reply(c.port, "POST", "/v1/completions", dict(body, max_tokens=400), Idempotency_Key="k2")
        assert list(again.events())[-1][1] == "[DONE]"
        try:
            list(events)
            taken = False
        except Broken:
            taken = True
        assert taken, "two read one answer"
        # whole answers, choices, and what is refused
        for extra in ({}, {"n": 3, "temperature": 1.0, "seed": 3}, {"logprobs": 2, "max_tokens": 20}):
            asked = dict(STORY, max_tokens=40) | extra
            key = json.dumps(extra)
            answers = [Reply(c.port, "POST", "/v1/completions", asked, Idempotency_Key=key).body() for _ in range(2)]
            assert answers[0] == answers[1] and len(answers[0]["choices"]) == extra.get("n", 1), answers
        refused = Reply(c.port, "POST", "/v1/completions", dict(STORY, max_tokens=7), Idempotency_Key="k1")
        said = refused.body()["error"]
        assert refused.status == 422 and said["code"] == "idempotency_key_reused" and "k1" in said["message"], said
        assert Reply(c.port, "GET", "/v1/streams/cmpl-nothing").status == 404
        assert Reply(c.port, "POST", "/v1/completions", STORY, Idempotency_Key="k" * 256).status == 400
        api_keys_tell_answers_apart(c)


@test
def what_its_reader_would_stop_at_ends_an_answer_that_nobody_reads():
    """A text far behind where the reader leaves, and a token."""
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        long = dict(DRAWN, max_tokens=1900)
        text = whole(c, long)
        at = next(i for i in range(len(text) // 3, len(text)) if text.find(text[i:i + 12]) == i)
        ids = c.request("POST", "/tokenize", {"model": "demo", "content": text, "add_special": False})[1]["tokens"]
        last = next(t for i, t in enumerate(ids) if i > len(ids) // 3 and ids.index(t) == i)
        for stop in ({"stop": [text[at:at + 12]]}, {"stop_token_ids": [last]}):
            key, body = json.dumps(stop), long | stop
            right = whole(c, body)
            assert len(right) < 0.9 * len(text), (stop, len(right), len(text))
            before = metric(c, "hp_output_tokens_total")
            reply = Reply(c.port, "POST", "/v1/completions", dict(body, stream=True), Idempotency_Key=key)
            next(reply.events())
            reply.close()
            c.wait("it has ended", lambda: c.hpctl("describe", "demo")["sequences_active"] == 0)
            made = metric(c, "hp_output_tokens_total") - before
            print(f"# {made:.0f} tokens of at most {long['max_tokens']}")
            assert made < long["max_tokens"], made
            events = list(Reply(c.port, "POST", "/v1/completions", dict(body, stream=True), Idempotency_Key=key).events())
            said = [x for _, d in events[:-1] for x in json.loads(d)["choices"]]
            assert "".join(x["text"] for x in said) == right and said[-1]["finish_reason"] == "stop", said[-3:]


def used(c):
    return next(k["used"]["output_tokens"] for k in c.hpctl("key", "ls") if k["name"] == "reader")


def idle(c):
    """No agent has taken a tick of processor time beyond its beats while one looked twice."""
    def ticks():
        pids = [c.agent(name)["pid"] for name in ("a0", "a1", "a2")]
        return sum(sum(map(int, open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[11:13])) for pid in pids)
    first = ticks()
    time.sleep(0.5)
    return ticks() - first <= 5


@test
def coordinators_that_are_killed_end_no_stream_and_forget_no_change():
    seed = int(os.environ.get("HP_SEED", random.randrange(1 << 30)))
    print(f"# HP_SEED={seed}")
    chance = random.Random(seed)
    with Cluster(agents=3, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1,a2", "--compute", "f32")
        SECRET.append(c.hpctl("key", "create", "reader")["key"])
        # So long that they are on their way when the coordinator is back, on fast boxes too.
        bodies = [dict(b, max_tokens=900) for b in (STORY, DRAWN, dict(STORY, prompt="Once upon a time", logprobs=2))]
        texts = [whole(c, b) for b in bodies]
        scores = answered(c, bodies[2])["logprobs"]["token_logprobs"]
        generation = c.hpctl("describe", "demo")["generation"]
        pauses, adopted, named = [], 0, ["reader"]
        for turn in range(KILLS):
            now = [Reader(c.port, b, f"{turn}/{i}", by_name=i == 1) for i, b in enumerate(bodies)]
            c.wait("all have begun", lambda: all(r.tokens > chance.randrange(1, 60) or r.failure for r in now))
            named.append(f"change-{turn}")
            c.hpctl("key", "create", named[-1])
            c.kill("coordinator")
            c.hpctl("local", "start", "--coordinator")
            finish(now, texts)
            assert now[2].scores == scores, (len(now[2].scores), len(scores))
            adopted += metric(c, "hp_streams_adopted_total")
            pauses.append(max(r.pause for r in now))
            assert sorted(k["name"] for k in c.hpctl("key", "ls")) == sorted(named), "a change that was acknowledged is lost"
        assert c.hpctl("describe", "demo")["generation"] == generation, "something was loaded again"
        print(f"# {KILLS} kills of the coordinator under {len(bodies)} streams: {adopted:.0f} of {KILLS * len(bodies)} taken over at work, "
              f"pauses median {statistics.median(pauses):.2f} s, most {max(pauses):.2f} s; load {os.getloadavg()[0]:.0f}")
        assert adopted > KILLS / 4, adopted
        long = dict(STORY, max_tokens=1200)
        text = whole(c, long)
        for turn in range(6):  # what is said without a coordinator counts for the key, too
            time.sleep(3)  # a key's use is stored a second after it changed: a kill before that loses the turn before
            before, reader = used(c), Reader(c.port, long, f"alone/{turn}")
            c.wait("it has begun", lambda: reader.tokens > 2 or reader.failure)
            c.kill("coordinator")
            heard = reader.tokens
            c.wait("the stages have said all", lambda: idle(c))
            c.hpctl("local", "start", "--coordinator")
            finish([reader], [text])
            if heard < long["max_tokens"] / 4:
                break
        print(f"# {heard} of {long['max_tokens']} tokens were heard, {used(c) - before} counted")
        assert heard >= long["max_tokens"] / 4 or long["max_tokens"] / 2 <= used(c) - before <= 2 * long["max_tokens"], (heard, before, used(c))


main()
