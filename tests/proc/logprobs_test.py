"""How likely tokens are, told through HTTP: of answers and of prompts, those of the reference's logits (float32, within 1e-4), whatever lies between."""
import tempfile

import numpy

from cluster import Cluster, DEMO
from tap import main, test

TEXT = "<|im_start|>user\nThe red box holds a spoon. The blue box holds a kite. " * 6 + "What is in it?"


def shares(c, ids):
    """Logarithms of the shares of all tokens behind each position, and which token is how likely."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as f:
        done = c.run("model", "logits", DEMO, "--ids", ",".join(map(str, ids)), "--compute", "f32", "-o", f.name)
        assert done.returncode == 0, done.stderr
        rows = numpy.load(f.name).astype(numpy.float64)
    most = rows.max(axis=1, keepdims=True)
    return rows - most - numpy.log(numpy.exp(rows - most).sum(axis=1, keepdims=True))


def close(a, b):
    return abs(a - b) < 1e-4


def ask(c, fields, path="/v1/completions", status=200):
    got, body = c.request("POST", path, dict({"model": "demo", "max_tokens": 8, "temperature": 0, "ignore_eos": True}, **fields))
    assert got == status, (got, body)
    return body


def ids_of(c, text):
    return ask(c, {"content": text}, "/tokenize")["tokens"]


def scored(c, ids):
    """An evaluation harness's request: the prompt is told, with what is said of it."""
    body = ask(c, {"prompt": ids, "max_tokens": 1, "logprobs": 2, "echo": True})
    assert body["usage"]["prompt_tokens"] == len(ids) and body["usage"]["completion_tokens"] == 1, body["usage"]
    return body["choices"][0]


def prompt_holds(choice, want, ids):
    lp = choice["logprobs"]
    n = len(lp["tokens"])
    assert all(len(lp[k]) == n for k in ("token_logprobs", "top_logprobs", "text_offset")) and n >= len(ids), {k: len(v) for k, v in lp.items()}
    assert lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None, lp["token_logprobs"][:2]
    for i in range(1, len(ids)):
        row = want[i - 1]
        assert close(lp["token_logprobs"][i], row[ids[i]]), (i, lp["token_logprobs"][i], row[ids[i]])
        likeliest = sorted(lp["top_logprobs"][i].values(), reverse=True)
        assert 2 <= len(likeliest) <= 3 and close(likeliest[0], row.max()) and close(likeliest[1], numpy.sort(row)[-2]), (i, likeliest)
    text = choice["text"]
    for at, token in zip(lp["text_offset"], lp["tokens"]):
        assert token.startswith("bytes:") or text[at:at + len(token)] == token, (at, token, text[at:at + 20])


@test
def a_prompt_has_the_reference_s_scores_over_any_stages_and_whatever_is_kept():
    with Cluster(agents=3, cores=1) as c:
        for agents in ("a0", "a0,a1,a2"):
            c.deploy("demo", DEMO, "--compute", "f32", "--agents", agents)
            ids = ids_of(c, TEXT)
            want = shares(c, ids)
            ask(c, {"prompt": ids})  # its keys and values are kept, which would be begun with
            for _ in range(2):
                choice = scored(c, ids)
                prompt_holds(choice, want, ids)
                assert close(choice["logprobs"]["token_logprobs"][-1], want[-1].max()), choice["logprobs"]["token_logprobs"][-1]
            bare = ask(c, {"prompt": ids, "max_tokens": 0, "logprobs": 2, "echo": True})
            assert bare["usage"]["completion_tokens"] == 0 and len(bare["choices"][0]["logprobs"]["tokens"]) == len(ids), bare["usage"]
            prompt_holds(bare["choices"][0], want, ids)
            # Lists, one token, one answer of several, a stream.
            body = ask(c, {"prompt": [ids[:40], ids[:1], ids[:70]], "max_tokens": 1, "logprobs": 2, "echo": True, "n": 2})
            assert len(body["choices"]) == 6, body
            for i, n in enumerate((40, 40, 1, 1, 70, 70)):
                prompt_holds(body["choices"][i], want, ids[:n])
            s = c.stream("/v1/completions", {"model": "demo", "prompt": ids, "max_tokens": 3, "logprobs": 2, "echo": True, "temperature": 0, "ignore_eos": True})
            all_of = {"text": "", "logprobs": {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}}
            for e in s.events():
                for x in (e or {}).get("choices", []):
                    all_of["text"] += x["text"]
                    for k, v in (x["logprobs"] or {}).items():
                        all_of["logprobs"][k] += v
            s.close()
            assert len(all_of["logprobs"]["tokens"]) == len(ids) + 3, all_of
            prompt_holds(all_of, want, ids)
            # As vLLM tells them.
            told = ask(c, {"prompt": ids, "prompt_logprobs": 1, "max_tokens": 1})["choices"][0]["prompt_logprobs"]
            assert told[0] is None and len(told) == len(ids), told[:2]
            for i in range(1, len(ids)):
                mine, row = told[i][str(ids[i])], want[i - 1]
                assert close(mine["logprob"], row[ids[i]]) and mine["rank"] == 1 + int((row > row[ids[i]]).sum()), (i, mine)
                assert any(x["rank"] == 1 and close(x["logprob"], row.max()) for x in told[i].values()), told[i]
            c.hpctl("undeploy", "demo")


@test
def an_answer_s_tokens_have_the_scores_of_the_run_that_made_them():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--compute", "f32", "--agents", "a0,a1", "--speculate", "lookup")
        ids = ids_of(c, TEXT)
        body = ask(c, {"prompt": ids, "max_tokens": 24, "logprobs": 3})
        lp = body["choices"][0]["logprobs"]
        assert len(lp["tokens"]) == 24 and "".join(lp["tokens"]) == body["choices"][0]["text"], lp["tokens"]
        answer = ids_of(c, TEXT + body["choices"][0]["text"])[len(ids):]
        if len(answer) == 24:  # it is cut as it was made
            want = shares(c, ids + answer)
            for i, id in enumerate(answer):
                assert close(lp["token_logprobs"][i], want[len(ids) - 1 + i][id]), (i, lp["token_logprobs"][i])
        assert all(close(max(t.values()), v) for t, v in zip(lp["top_logprobs"], lp["token_logprobs"])), lp  # greedy
        # The token that ends an answer stands behind the others, as many as were made; harnesses leave the last one out.
        closed = {"prompt": "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\nThe capital of France is Paris.", "ignore_eos": False, "logprobs": 1}
        ids = ids_of(c, closed["prompt"])
        for echo, tokens in ((True, 1), (False, 1), (False, 9)):
            body = ask(c, dict(closed, echo=echo, max_tokens=tokens))
            lp, before = body["choices"][0]["logprobs"], len(ids) if echo else 0
            assert lp["tokens"][before:] == ["<|im_end|>"] and body["usage"]["completion_tokens"] == 1 and body["choices"][0]["finish_reason"] == "stop", body
            assert close(lp["token_logprobs"][-1], shares(c, ids)[-1].max()) and all(len(v) == before + 1 for v in lp.values()), lp
            assert body["choices"][0]["text"] == (closed["prompt"] if echo else ""), body
            s = c.stream("/v1/completions", dict(closed, model="demo", echo=echo, max_tokens=tokens, temperature=0))
            told = [t for e in s.events() for x in (e or {}).get("choices", []) for t in (x["logprobs"] or {"tokens": []})["tokens"]]
            s.close()
            assert told == lp["tokens"], (told, lp["tokens"])
        stopped = ask(c, dict(closed, ignore_eos=True, stop_token_ids=[ids_of(c, "<|im_end|>")[0]], max_tokens=9))["choices"][0]["logprobs"]
        assert stopped["tokens"] == ["<|im_end|>"], stopped
        ended = ask(c, {"messages": [{"role": "user", "content": "What is the capital of France?"}], "logprobs": True, "max_tokens": 40, "ignore_eos": False}, "/v1/chat/completions")["choices"][0]
        assert "".join(r["token"] for r in ended["logprobs"]["content"]) == ended["message"]["content"], ended
        # Chats, whole and streamed; penalties and bias change what is drawn, and not what is said.
        chat = {"messages": [{"role": "user", "content": "Tell me a story."}], "logprobs": True, "top_logprobs": 2, "max_tokens": 12}
        whole = ask(c, chat, "/v1/chat/completions")["choices"][0]
        rows = whole["logprobs"]["content"]
        assert len(rows) == 12 and b"".join(bytes(r["bytes"]) for r in rows).decode() == whole["message"]["content"], whole
        assert all(len(r["top_logprobs"]) == 2 and r["top_logprobs"][0]["logprob"] == r["logprob"] for r in rows), rows
        s = c.stream("/v1/chat/completions", dict(chat, model="demo", temperature=0, ignore_eos=True))
        streamed = [r for e in s.events() if e for x in e["choices"] if x["logprobs"] for r in x["logprobs"]["content"]]
        s.close()
        assert [r["token"] for r in streamed] == [r["token"] for r in rows], streamed
        assert all(close(a["logprob"], b["logprob"]) for a, b in zip(streamed, rows)), streamed
        other = ask(c, dict(chat, logit_bias={str(ids_of(c, rows[0]["token"])[-1]): -100}), "/v1/chat/completions")["choices"][0]["logprobs"]["content"][0]
        assert other["token"] == rows[0]["top_logprobs"][1]["token"] and close(other["logprob"], rows[0]["top_logprobs"][1]["logprob"]), (other, rows[0])
        line = ask(c, {"messages": chat["messages"], "stream": False, "logprobs": True, "top_logprobs": 1, "options": {"temperature": 0, "num_predict": 5}}, "/api/chat")
        assert len(line["logprobs"]) == 5 and line["logprobs"][0]["token"] == rows[0]["token"], line
        # Echo alone, and what is wrong.
        assert ask(c, {"prompt": ["One.", ids[:4]], "echo": True, "max_tokens": 2})["choices"][0]["text"].startswith("One."), "echo"
        for fields, named in (({"logprobs": 21}, "logprobs"), ({"logprobs": True}, "logprobs"), ({"logprobs": -1}, "logprobs"), ({"echo": "yes"}, "echo"),
                              ({"prompt_logprobs": 21}, "prompt_logprobs"), ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"), ({"max_tokens": 0}, "max_tokens")):
            assert ask(c, dict({"prompt": "One"}, **fields), status=400)["error"]["param"] == named, fields
        assert ask(c, dict(chat, logprobs=False), "/v1/chat/completions", 400)["error"]["param"] == "top_logprobs"
        assert ask(c, dict(chat, echo=True), "/v1/chat/completions", 400)["error"]["param"] == "echo"


@test
def an_answer_does_not_end_before_its_least_tokens():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO, "--compute", "f32")
        chat = {"messages": [{"role": "user", "content": "How are you?"}], "max_tokens": 40, "ignore_eos": False}
        short = ask(c, chat, "/v1/chat/completions")["usage"]["completion_tokens"]
        assert short < 40, short
        longer = ask(c, dict(chat, min_tokens=short + 5), "/v1/chat/completions")["usage"]["completion_tokens"]
        assert longer >= short + 5, (short, longer)
        assert ask(c, dict(chat, min_tokens=-1), "/v1/chat/completions", 400)["error"]["param"] == "min_tokens"


main()
