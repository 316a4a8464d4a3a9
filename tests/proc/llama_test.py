"""What clients of llama-server and of vLLM ask beside OpenAI's paths: the native completion and its stream, gaps that are filled in, slots, and names with a slash."""
import json
import math
import os
import shutil
import subprocess
import tempfile

from cluster import Cluster, DEMO, SCALE, Stream
from encoders import SHARED
from tap import main, skip, test

STORY = "Once upon a time"
SURE = "<|im_start|>user\nWhat is the capital of Cuba?<|im_end|>\n<|im_start|>assistant\n"
SURE = "<|im_start|>user\nWhat is the capital of Cuba?<|im_end|>\n<|im_start|>assistant\n"


def pieces(c, body):
    """Events of POST /completion."""
    stream = Stream(c.port, "/completion", dict(body, stream=True), 60 * SCALE)
    events = list(stream.events())
    stream.close()
    return events


@test
def the_native_completion_says_what_openais_does():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO, "--compute", "f32")
        asked = {"temperature": 0, "seed": 3, "ignore_eos": True}
        wanted = c.request("POST", "/v1/completions", {"model": "demo", "prompt": STORY, "max_tokens": 12, "logprobs": 0, **asked})[1]
        text = wanted["choices"][0]["text"]
        for more in ({}, {"model": "demo"}, {"model": None}, {"prompt": [STORY]}, {"n_keep": 0, "cache_prompt": True, "id_slot": -1, "n_probs": 0, "samplers": ["dry", "temperature", "xtc"], "t_max_prompt_ms": 500, "t_max_predict_ms": 0, "n_indent": 0, "response_fields": [], "stop": [], "logit_bias": []}):
            status, said = c.request("POST", "/completion", {"prompt": STORY, "n_predict": 12, **asked, **more})
            assert status == 200 and said["content"] == text and said["stop"] is True and said["stop_type"] == "limit" and said["model"] == "demo", said
            assert said["tokens_predicted"] == said["timings"]["predicted_n"] == 12 and said["timings"]["cache_n"] + said["timings"]["prompt_n"] == said["tokens_evaluated"] == wanted["usage"]["prompt_tokens"], (said, wanted)
        ids = c.request("POST", "/tokenize", {"model": "demo", "prompt": STORY})[1]["tokens"]
        assert c.request("POST", "/completion", {"prompt": ids, "n_predict": 12, **asked})[1]["content"] == text
        events = pieces(c, {"prompt": STORY, "n_predict": 12, **asked})
        assert "".join(e["content"] for e in events) == text and [e["stop"] for e in events] == [False] * (len(events) - 1) + [True] and len(events) > 3, events
        assert events[-1]["stop_type"] == "limit" and events[-1]["timings"]["predicted_n"] == 12, events[-1]
        word = text.split()[2]
        said = c.request("POST", "/completion", {"prompt": STORY, "n_predict": 12, "stop": [word], **asked})[1]
        assert said["stop_type"] == "word" and said["stopping_word"] == word and said["content"] == text[:text.index(word)], said
        status, said = c.request("POST", "/completion", {"prompt": STORY, "temperature": 0, "seed": 3})
        assert status == 200 and said["stop_type"] == "eos", said
        said = c.request("POST", "/completion", {"prompt": STORY, "grammar": 'root ::= "yes" | "no"', "temperature": 2})[1]
        assert said["content"] in ("yes", "no") and said["stop_type"] == "eos", said
        said = c.request("POST", "/completion", {"prompt": STORY, "json_schema": {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 2}, "temperature": 1})[1]
        assert len(json.loads(said["content"])) == 2, said
        told(c, text, asked, wanted)
        first = c.request("POST", "/tokenize", {"model": "demo", "prompt": STORY + wanted["choices"][0]["logprobs"]["tokens"][0]})[1]["tokens"][-1]
        forbidden = c.request("POST", "/completion", {"prompt": STORY, "n_predict": 1, "logit_bias": [[first, False]], **asked})[1]
        assert forbidden["content"] != c.request("POST", "/completion", {"prompt": STORY, "n_predict": 1, **asked})[1]["content"], forbidden
        drawn = {c.request("POST", "/completion", {"prompt": STORY, "n_predict": 12, "temperature": 2, "seed": -1})[1]["content"] for _ in range(4)}
        assert len(drawn) > 1, drawn  # -1 is for any
        refusals(c)
        slots = c.request("GET", "/slots")[1]
        assert len(slots) == c.hpctl("describe", "demo")["max_sequences"] and all(s["n_ctx"] and s["is_processing"] is False for s in slots), slots
        assert c.request("GET", "/slots?model=other")[0] == 404 and c.request("GET", "/ping")[0] == 200
        by_curl = subprocess.run(["curl", "-s", "--json", json.dumps({"prompt": STORY, "n_predict": 12, **asked}), f"{c.http}/completion"], capture_output=True, text=True)
        assert json.loads(by_curl.stdout)["content"] == text, by_curl
        names(c, text, asked)
        settings(c)


def told(c, text, asked, wanted):
    """What is said of tokens, and of several answers."""
    likely = c.request("POST", "/v1/completions", {"model": "demo", "prompt": STORY, "max_tokens": 12, "logprobs": 3, **asked})[1]["choices"][0]["logprobs"]
    body = {"prompt": STORY, "n_predict": 12, "n_probs": 3, **asked}
    said = c.request("POST", "/completion", {**body, "return_tokens": True})[1]
    rows = said["completion_probabilities"]
    assert said["content"] == text and len(said["tokens"]) == len(rows) == 12 and [r["id"] for r in rows] == said["tokens"], said
    assert [r["logprob"] for r in rows] == likely["token_logprobs"] and all(len(r["top_logprobs"]) == 3 and r["top_logprobs"][0]["logprob"] >= r["top_logprobs"][2]["logprob"] for r in rows), (rows, likely)
    spelt = b"".join(bytes(r["bytes"]) for r in rows).decode()
    assert spelt == c.request("POST", "/detokenize", {"tokens": said["tokens"]})[1]["content"] and spelt.replace("<|im_end|>", "").replace("<|im_start|>", "") == text, (spelt, text)
    assert "completion_probabilities" not in c.request("POST", "/completion", {**body, "n_probs": 0})[1]
    events = pieces(c, {**body, "timings_per_token": True})
    assert [i for e in events for i in e["tokens"]] == said["tokens"] and [r for e in events for r in e.get("completion_probabilities", [])] == rows, events
    assert all(e["timings"]["predicted_n"] == e["tokens_predicted"] and e["timings"]["prompt_n"] + e["timings"]["cache_n"] == e["tokens_evaluated"] == said["tokens_evaluated"] for e in events), events
    assert [e["tokens_predicted"] for e in events] == sorted(e["tokens_predicted"] for e in events) and all("timings" not in e for e in pieces(c, body)[:-1])
    after = c.request("POST", "/completion", {"prompt": STORY, "n_predict": 4, "n_probs": 20, "post_sampling_probs": True})[1]["completion_probabilities"]
    assert all(0 <= t["prob"] <= 1 for r in after for t in (r, *r["top_probs"])) and all(0.1 < sum(t["prob"] for t in r["top_probs"]) <= 1.0001 for r in after) and "logprob" not in after[0], after
    ended = c.request("POST", "/completion", {"prompt": STORY, "temperature": 0, "return_tokens": True})[1]
    assert ended["stop_type"] == "eos" and len(ended["tokens"]) == ended["tokens_predicted"], ended
    # Several answers: a list, and in a stream each by its index, with an end of its own.
    other = "The cat"
    each = [c.request("POST", "/completion", {"prompt": p, "n_predict": 6, **asked})[1] for p in (STORY, other)]
    ids = c.request("POST", "/tokenize", {"content": other, "add_special": True})[1]["tokens"]
    for second in (other, ids):
        status, several = c.request("POST", "/completions", {"prompt": [STORY, second], "n_predict": 6, **asked})
        assert status == 200 and [(a["index"], a["content"], a["tokens_evaluated"]) for a in several] == [(i, a["content"], a["tokens_evaluated"]) for i, a in enumerate(each)], (several, each)
    events = pieces(c, {"prompt": [STORY, other], "n_predict": 6, **asked})
    assert ["".join(e["content"] for e in events if e["index"] == i) for i in (0, 1)] == [a["content"] for a in each] and [sum(e["stop"] for e in events if e["index"] == i) for i in (0, 1)] == [1, 1], events
    words = [a["content"].split()[0] for a in each]
    several = c.request("POST", "/completion", {"prompt": [STORY, other], "n_predict": 6, "stop": words, **asked})[1]
    assert [a["stopping_word"] for a in several] == words and all(a["stop_type"] == "word" for a in several), (several, words)
    drawn = c.request("POST", "/completion", {"prompt": STORY, "n_predict": 6, "n_cmpl": 3, "temperature": 2, "seed": 5, "response_fields": ["content", "index"]})[1]
    assert [a["index"] for a in drawn] == [0, 1, 2] and len({a["content"] for a in drawn}) > 1 and set(drawn[0]) == {"content", "index"}, drawn


def refusals(c):
    for fields, param in (({"n_predict": "x"}, "n_predict"), ({"samplers": ["infill"]}, "samplers"), ({"samplers": 7}, "samplers"), ({"response_fields": "content"}, "response_fields"), ({"response_fields": ["x" * 129]}, "response_fields"), ({"response_fields": ["x"] * 65}, "response_fields"), ({"t_max_predict_ms": "x"}, "t_max_predict_ms"), ({"top_n_sigma": 1}, "top_n_sigma"), ({"repeat_last_n": -2}, "repeat_last_n"), ({"timings_per_token": 7}, "timings_per_token"), ({"return_tokens": "yes"}, "return_tokens"), ({"n_probs": 21}, "n_probs"), ({"n_probs": 10 ** 9}, "n_probs"), ({"n_probs": True}, "n_probs"), ({"logprobs": -1}, "n_probs"), ({"n": 1000}, "n"), ({"n_cmpl": 1000}, "n_cmpl"), ({"n_indent": 1.5}, "n_indent"),
                          ({"samplers": ["top_k", "infill"], "top_k": 257}, "samplers"), ({"samplers": ["infill", "top_k"], "top_k": 4}, "samplers"), ({"samplers": "kz"}, "samplers"), ({"samplers": ["top_k"] * 65}, "samplers"), ({"min_keep": 2}, "min_keep"), ({"adaptive_target": 0.5}, "adaptive_target"), ({"return_progress": True}, "return_progress"),
                          ({"n_probs": 3, "post_sampling_probs": True, "temperature": 0.5}, "post_sampling_probs"), ({"n_probs": 3, "post_sampling_probs": True, "grammar": 'root ::= "a"'}, "post_sampling_probs"),
                          ({"logit_bias": [[1]]}, "logit_bias"), ({"prompt": ["a"] * 513}, "prompt"), ({"prompt": ["a", 7]}, "prompt"), ({"prompt": ["a", ""]}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": {"prompt_string": "a"}}, "prompt"), ({"prompt": 7}, "prompt"), ({"mirostat": 2}, "mirostat"), ({"image_data": [{"id": 1}]}, "image_data"),
                          ({"model": 7}, "model"), ({"n_predict": 12, "repeat_penalty": -1}, "repeat_penalty")):
        status, said = c.request("POST", "/completion", {"prompt": STORY, **fields})
        assert status == 400 and said["error"]["param"] == param and param in said["error"]["message"], (fields, said)
    status, said = c.request("POST", "/infill", {"input_prefix": "def f(", "input_suffix": "return 1"})
    assert status == 400 and "no tokens that mark a gap" in said["error"]["message"], said


def settings(c):
    """What it does by itself, and what it was asked for."""
    status, props = c.request("GET", "/props")
    usual = props["default_generation_settings"]
    assert status == 200 and props["total_slots"] == len(c.request("GET", "/slots")[1]) and usual["n_ctx"] == c.hpctl("describe", "demo")["context"], props
    assert usual["params"]["temperature"] == usual["params"]["repeat_penalty"] == 1 and usual["params"]["n_predict"] == -1 and props["modalities"] == {"vision": False, "audio": False}, props
    asked = {"temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "repeat_penalty": 1.5, "presence_penalty": 0.25, "seed": 7, "n_predict": 2, "n_indent": 2, "t_max_predict_ms": 10 ** 6, "stop": ["\u20ac\""], "ignore_eos": True}
    said = c.request("POST", "/completion", {"prompt": STORY, "logit_bias": [[5, -1.5]], **asked})[1]["generation_settings"]
    assert {k: said[k] for k in asked} == asked and said["logit_bias"] == [{"token": 5, "bias": -1.5}] and said["stream"] is False, said
    assert c.request("GET", "/v1/health") == c.request("GET", "/health") == (200, {"status": "ok"})
    assert c.request("GET", "/slots?fail_on_no_slot=1")[0] == 200


@test
def samplers_that_are_left_out_are_off_and_another_order_is_refused():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO, "--compute", "f32")
        some = {"temperature": 6, "top_k": 20, "top_p": 0.7, "min_p": 0.2, "repeat_penalty": 1.3, "frequency_penalty": 0.5}

        def said(seed, **fields):
            status, reply = c.request("POST", "/completion", {"prompt": STORY, "n_predict": 12, "ignore_eos": True, "seed": seed, **fields})
            assert status == 200, reply
            return reply["content"]
        seeds = range(4)
        for samplers, left in ((["top_k", "top_p"], ("top_k", "top_p")), (["top_k", "temperature", "min_p"], ("temperature", "top_k", "min_p")), ("ek", ("repeat_penalty", "frequency_penalty", "top_k")), ([], ()),
                               (["penalties", "dry", "temperature", "top_k", "typ_p", "top_p", "min_p", "xtc"], tuple(some))):
            assert [said(seed, samplers=samplers, **some) for seed in seeds] == [said(seed, **{k: some[k] for k in left}) for seed in seeds], samplers
        assert len({said(1, samplers=samplers, **some) for samplers in ([], ["top_k"], "tkpm", "e")}) > 1
        penalised, plain = {"temperature": 0, "repeat_penalty": 4.0, "n_predict": 60}, {"temperature": 0, "n_predict": 60}
        assert said(1, repeat_last_n=-1, **penalised) == said(1, **penalised) != said(1, **plain) == said(1, repeat_last_n=0, **penalised) == said(1, repeat_last_n=64, **plain)
        # Without temperature nothing is greedy; with it there is nothing left to cut, in whatever order.
        assert len({said(seed, samplers=["top_k"], temperature=0) for seed in range(8)}) > 1
        assert said(1, samplers=["top_p", "top_k", "min_p", "temperature"], top_p=0.5, top_k=3, min_p=0.1, temperature=0) == said(2, temperature=0)
        for samplers in (["top_k", "penalties"], ["top_k", "top_k"], "ke", "pmp"):
            status, reply = c.request("POST", "/completion", {"prompt": STORY, "samplers": samplers, **some})
            assert status == 400 and reply["error"]["param"] == "samplers", (samplers, reply)
        # Another order is another answer: what is cut at temperature 1 leaves few at temperature 6.
        one, other = {"temperature": 6, "top_p": 0.99}, ["top_p", "temperature"]
        assert len({said(seed, samplers=other, **one) for seed in range(8)}) > 1
        assert [said(seed, samplers=other, **one) for seed in seeds] != [said(seed, **one) for seed in seeds]
        status, reply = c.request("POST", "/v1/completions", {"model": "demo", "prompt": STORY, "max_tokens": 12, "ignore_eos": True, "seed": 3, "samplers": other, **one})
        assert reply["choices"][0]["text"] == said(3, samplers=other, **one), reply
        settings = c.request("POST", "/completion", {"prompt": STORY, "n_predict": 2, "samplers": "epkt", "repeat_last_n": 8, **one, "top_k": 4, "repeat_penalty": 1.5})[1]["generation_settings"]
        assert settings["samplers"] == ["penalties", "top_p", "top_k", "temperature"] and settings["repeat_last_n"] == 8, settings
        # llama-server's own order, where it comes to the same.
        assert said(3, samplers=["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"], top_k=20, top_p=0.7) == said(3, top_k=20, top_p=0.7)


@test
def an_answer_has_the_fields_that_are_asked_for():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO, "--compute", "f32")
        body = {"prompt": STORY, "n_predict": 6, "temperature": 0, "ignore_eos": True}
        whole = c.request("POST", "/completion", body)[1]
        said = c.request("POST", "/completion", {**body, "response_fields": ["timings/predicted_n", "content", "generation_settings/n_predict", "nothing", "timings/nothing", "content/more", "stop_type"]})[1]
        assert said == {"timings/predicted_n": 6, "content": whole["content"], "generation_settings/n_predict": 6, "stop_type": "limit"} and list(said)[0] == "timings/predicted_n", said
        assert c.request("POST", "/completion", {**body, "response_fields": [""]})[1] == {}
        events = pieces(c, {**body, "response_fields": ["stop", "tokens_predicted"]})
        assert events[-1] == {"stop": True, "tokens_predicted": 6} and "".join(e["content"] for e in events[:-1]) == whole["content"], events


@test
def an_answer_ends_with_a_line_that_is_late_or_indented_too_little():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO, "--compute", "f32")
        body = {"prompt": STORY, "n_predict": 1000, "temperature": 0, "ignore_eos": True}
        whole = c.request("POST", "/completion", body)[1]["content"]
        said = c.request("POST", "/completion", {**body, "t_max_predict_ms": 1})[1]
        assert said["stop_type"] == "limit" and said["has_new_line"] and said["tokens_predicted"] < 1000 and "\n" in said["content"] and whole.startswith(said["content"]), said
        assert c.request("POST", "/completion", {**body, "t_max_predict_ms": 10 ** 7})[1]["content"] == whole
        events = pieces(c, {**body, "t_max_predict_ms": 1})
        assert events[-1]["stop_type"] == "limit" and whole.startswith("".join(e["content"] for e in events)), events[-1]
        no_line = {"grammar": 'root ::= "a"{60}', "prompt": STORY, "t_max_predict_ms": 1}
        assert c.request("POST", "/completion", no_line)[1]["content"] == "a" * 60  # without a line there is no end
        lines = {"prompt": STORY, "grammar": 'root ::= "def f():\\n    a\\n      b\\n  c\\n    d\\n"'}
        for n, text, stop in ((0, "def f():\n    a\n      b\n  c\n    d\n", "eos"), (4, "def f():\n    a\n      b\n  ", "limit"), (5, "def f():\n    ", "limit"), (2, "def f():\n    a\n      b\n  c\n    d\n", "eos")):
            said = c.request("POST", "/completion", {**lines, "n_indent": n})[1]
            assert (said["content"], said["stop_type"]) == (text, stop), (n, said)
            assert "".join(e["content"] for e in pieces(c, {**lines, "n_indent": n})) == text, n
        status, said = c.request("POST", "/v1/completions", {"model": "demo", **lines, "n_indent": 4})
        assert said["choices"][0]["finish_reason"] == "length" and said["choices"][0]["text"].endswith("b\n  "), said
        for field in ("t_max_predict_ms", "n_indent"):
            status, said = c.request("POST", "/completion", {**body, field: 4}, headers={"Idempotency-Key": field, "Content-Type": "application/json"})
            assert status == 400 and said["error"]["message"].startswith(field + ":"), said


@test
def a_prompt_that_is_read_alone_is_found_by_the_next_request():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO, "--compute", "f32")
        prompt = (STORY + " there was a box with many cores. ") * 6
        for stream in (False, True):
            said = pieces(c, {"prompt": prompt, "n_predict": 0})[-1] if stream else c.request("POST", "/completion", {"prompt": prompt, "n_predict": 0, "id_slot": 0, "t_max_prompt_ms": 1})[1]
            assert said["content"] == "" and said["tokens_predicted"] == said["timings"]["predicted_n"] == 0 and said["stop_type"] == "limit" and said["tokens_evaluated"] > 64, said
        said = c.request("POST", "/completion", {"prompt": prompt + "It", "n_predict": 2})[1]
        assert said["timings"]["cache_n"] >= 64 and said["tokens_predicted"] == 2, said


@test
def paths_and_bodies_of_llama_servers_clients_are_taken_as_they_are():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO, "--compute", "f32")
        user, key = [{"role": "user", "content": "Hello!"}], {"Authorization": "Bearer ", "Content-Type": "application/json"}
        wanted = c.request("POST", "/v1/chat/completions", {"model": "demo", "messages": user, "max_tokens": 8, "temperature": 0})[1]["choices"][0]["message"]
        # llama.vim's instructions: first to read, then to answer.
        status, said = c.request("POST", "/v1/chat/completions", {"id_slot": 0, "messages": user, "samplers": [], "n_predict": 0, "stream": False, "cache_prompt": True, "response_fields": [""], "model": ""}, headers=key)
        assert status == 200 and said["choices"][0]["message"]["content"] == "" and said["usage"]["completion_tokens"] == 0, said
        # llama.vscode's chats.
        usual = {"stream": False, "cache_prompt": True, "samplers": "edkypmxt", "temperature": 0.8, "dynatemp_range": 0, "dynatemp_exponent": 1, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 1, "xtc_probability": 0, "xtc_threshold": 0.1, "repeat_last_n": 64, "repeat_penalty": 1, "presence_penalty": 0,
                 "frequency_penalty": 0, "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1, "max_tokens": -1, "timings_per_token": False}
        status, said = c.request("POST", "/v1/chat/completions", {"messages": user, **usual})
        assert status == 200 and said["model"] == "demo", said
        timings, usage = said["timings"], said["usage"]
        assert timings["predicted_n"] == usage["completion_tokens"] and timings["prompt_n"] + timings["cache_n"] == usage["prompt_tokens"] and timings["predicted_per_second"] > 0 and "prefill_s" in timings, said
        # llama.cpp's page.
        stream = c.stream("/chat/completions", {"messages": user, "stream": True, "return_progress": True, "timings_per_token": True, "reasoning_format": "auto", "temperature": 0, "max_tokens": 8, "samplers": ["top_k", "typ_p", "top_p", "min_p", "temperature"], "backend_sampling": False, "typ_p": 1})
        events = [e for e in stream.events() if e and e.get("choices")]
        stream.close()
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == wanted["content"] and events[-1]["timings"]["predicted_n"] == 8 and events[1]["timings"]["predicted_n"] < 8, events
        # llama-cpp-agent's, SillyTavern's.
        for body in ({"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "n_predict": 8, "n_keep": 0, "tfs_z": 1.0, "typical_p": 1.0, "repeat_penalty": 1.1, "repeat_last_n": -1, "penalize_nl": False, "penalty_prompt": None, "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "cache_prompt": True, "seed": -1, "ignore_eos": False,
                      "samplers": ["top_k", "tfs_z", "typical_p", "top_p", "min_p", "temperature"], "stop": []},
                     {"n_predict": 8, "max_tokens": 8, "temperature": 0.7, "top_p": 0.5, "top_k": 40, "typical_p": 1, "typical": 1, "min_p": 0, "repetition_penalty": 1.2, "repeat_penalty": 1.2, "repeat_last_n": 1024, "frequency_penalty": 0, "presence_penalty": 0, "dynatemp_range": 0, "dynatemp_exponent": 1, "smoothing_factor": 0, "min_keep": 0, "top_n_sigma": 0, "nsigma": 0,
                      "xtc_probability": 0, "xtc_threshold": 0.1, "adaptive_target": -0.01, "adaptive_decay": 0.9, "dry_multiplier": 0, "dry_sequence_breakers": ["\n", ":"], "mirostat": 0, "ignore_eos": False, "n_probs": 10, "logit_bias": [[5, False]], "grammar": "", "cache_prompt": True, "skip_special_tokens": True, "tfs_z": 1,
                      "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "tfs_z", "typical_p", "xtc", "top_p", "adaptive_p", "min_p", "temperature"], "stop": [f"\nName{i}:" for i in range(40)], "n": 1}):
            status, said = c.request("POST", "/completion", {"prompt": STORY, **body})
            assert status == 200 and said["tokens_predicted"] <= 8 and len(said.get("completion_probabilities", [])) in (0, said["tokens_predicted"]), (body, said)
        for path in ("/models", "/v1/models"):
            assert c.request("GET", path)[1]["data"][0]["id"] == "demo", path
        special = c.request("GET", "/props")[1]["eos_token"]
        one, many = (c.request("POST", "/tokenize", {"content": special, **more})[1]["tokens"] for more in ({}, {"parse_special": False}))
        assert len(one) == 1 < len(many) and c.request("POST", "/tokenize", {"content": special, "parse_special": True})[1]["tokens"] == one, (one, many)
        status, said = c.request("POST", "/v1/completions", {"prompt": STORY, "max_tokens": 2, "seed": -1, "model": None})
        assert status == 200 and said["model"] == "demo", said
        c.deploy("second", DEMO, "--compute", "f32")
        status, said = c.request("POST", "/v1/chat/completions", {"messages": user})
        assert status == 400 and said["error"]["param"] == "model" and "say which one" in said["error"]["message"], said


def names(c, text, asked):
    """As clients know models of hubs; what is listed is what answers."""
    for name in ("org/demo", "a/b/demo"):
        status, said = c.request("POST", "/v1/completions", {"model": name, "prompt": STORY, "max_tokens": 12, **asked})
        assert status == 200 and said["model"] == "demo" and said["choices"][0]["text"] == text, said
    for path in ("/v1/models/org/demo", "/v1/models/org%2Fdemo", "/props?model=org/demo", "/slots?model=org/demo"):
        assert c.request("GET", path)[0] == 200, path
    for name in ("org/other", "org/", "demo/", "demo/org"):
        status, said = c.request("POST", "/v1/completions", {"model": name, "prompt": STORY})
        assert status == 404 and f'"{name}"' in said["error"]["message"], said


MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


def marked(folder, marks=MARKS):
    """A model whose vocabulary has marks of a gap; the first one's id."""
    source = os.path.join(os.environ.get("HP_GOLDEN", os.path.join(SHARED, "golden")), "qwen3", "hf")
    if not os.path.exists(source):
        skip("qwen3 is not there (HP_GOLDEN points at models with known answers)")
    shutil.copytree(source, folder)
    with open(os.path.join(folder, "tokenizer.json")) as f:
        tokenizer = json.load(f)
    first = 1 + max(t["id"] for t in tokenizer["added_tokens"])
    tokenizer["added_tokens"] += [{"id": first + i, "content": mark, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False} for i, mark in enumerate(marks)]
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump(tokenizer, f)
    return first


@test
def a_gap_is_filled_in_between_the_marks_of_the_model():
    with tempfile.TemporaryDirectory() as folder, Cluster(agents=1, cores=1) as c:
        model = os.path.join(folder, "m")
        mark = marked(model)
        c.deploy("code", model, "--compute", "f32")

        def tokens(text):
            return c.request("POST", "/tokenize", {"prompt": text, "add_special_tokens": False})[1]["tokens"]
        before, behind, asked = ("def half(x):\n    return ", "x"), "\n\nprint(half(4))", {"temperature": 0, "n_predict": 6, "ignore_eos": True}
        wanted = [mark, *tokens("".join(before)), mark + 1, *tokens(behind), mark + 2]
        status, said = c.request("POST", "/infill", {"input_prefix": before[0], "prompt": before[1], "input_suffix": behind, **asked})
        assert status == 200 and said["tokens_evaluated"] == len(wanted), (said, wanted)
        assert said["content"] == c.request("POST", "/completion", {"prompt": wanted, **asked})[1]["content"], said
        assert tokens(MARKS[2]) == [mark + 2]
        said = c.request("POST", "/infill", {"input_suffix": MARKS[2], **asked})[1]  # spelled by somebody: text
        assert said["tokens_evaluated"] > 5, said
        status, said = c.request("POST", "/infill", {"input_prefix": 7, **asked})
        assert status == 400 and said["error"]["param"] == "input_prefix", said


def infill_leaves(top, ends):
    """Of the likeliest tokens of an answer's place ([weight, id, bytes], heaviest first): which may stand there by the rules of the sampler "infill"."""
    mass = sum(weight for weight, _, _ in top)
    left = [[weight / mass, token, word] for weight, token, word in top]
    end = sum(p for p, token, _ in left if token in ends)
    if 3 * end * len(left) > 1 - end:
        return {token for _, token, _ in left if token in ends}
    for a in left:
        for b in left:
            if a is not b and a[2] and b[2] and b[2].startswith(a[2]):
                into, gone = (b, a) if b[0] > a[0] else (a, b)
                into[0] += gone[0]
                gone[0], gone[2] = 0, b""
    for least in (lambda n: 0.2, lambda n: 1 / (n + 1)):
        n = sum(token not in ends for _, token, _ in left)
        left = [[p, token, word] for p, token, word in left if token in ends or p >= least(n)]
        mass = sum(p for p, _, _ in left)
        left = [[p / mass, token, word] for p, token, word in left] if mass else left
        if all(token in ends for _, token, _ in left):
            return set(ends)
    return {token for _, token, _ in left}


@test
def an_editor_gets_what_surely_stands_in_a_gap_and_its_end_where_that_is_not_clear():
    with tempfile.TemporaryDirectory() as folder, Cluster(agents=1, cores=1) as c:
        model = os.path.join(folder, "m")
        marked(model, (*MARKS, "<|repo_name|>", "<|file_sep|>"))
        c.deploy("code", model, "--compute", "f32")
        lines = [f"x{i} = {i}\n" for i in range(40)]
        # As llama.vim sends it.
        body = {"id_slot": 0, "input_prefix": "def half(x):\n", "prompt": "    return ", "input_suffix": "\nprint(half(4))\n", "input_extra": [{"text": "".join(lines), "time": [1, 2], "filename": "a.py"}], "n_predict": 16, "stop": [], "n_indent": 4, "top_k": 40, "top_p": 0.9, "samplers": ["top_k", "top_p", "infill"], "stream": False,
                "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 10 ** 6, "model": "", "response_fields": ["content", "timings/prompt_n", "timings/prompt_ms", "timings/prompt_per_token_ms", "timings/prompt_per_second", "timings/predicted_n", "timings/predicted_ms", "timings/predicted_per_token_ms", "timings/predicted_per_second", "truncated", "tokens_cached"]}
        status, said = c.request("POST", "/infill", body, headers={"Authorization": "Bearer ", "Content-Type": "application/json"})
        assert status == 200 and list(said) == body["response_fields"] and said["truncated"] is False and said["tokens_cached"] > 100, said
        status, said = c.request("POST", "/infill", {"input_prefix": "", "input_suffix": "", "input_extra": body["input_extra"], "prompt": "", "n_predict": 0, "temperature": 0.0, "stream": False, "samplers": [], "cache_prompt": True, "t_max_prompt_ms": 1, "t_max_predict_ms": 1, "response_fields": [""], "model": ""})
        assert status == 200 and said == {}, said
        with open(os.path.join(model, "tokenizer.json")) as f:
            added = {t["content"]: t["id"] for t in json.load(f)["added_tokens"]}
        ends, kinds = {added[c.request("GET", "/props")[1]["eos_token"]]}, set()
        for seed in range(16):  # a model of random weights is sure of nothing; a low temperature makes it so
            heat = 0.02 * 3 ** (seed % 5)
            said = c.request("POST", "/infill", {**body, "prompt": f"    return {seed}", "samplers": "tki", "temperature": heat, "top_k": 20, "n_probs": 20, "seed": seed, "return_tokens": True, "response_fields": [], "n_predict": 8, "n_indent": 0})[1]
            assert len(said["completion_probabilities"]) == len(said["tokens"]) > 0, said
            for row in said["completion_probabilities"]:
                may = infill_leaves([[math.exp((t["logprob"] - row["top_logprobs"][0]["logprob"]) / heat), t["id"], b"" if t["id"] in added.values() else bytes(t["bytes"])] for t in row["top_logprobs"]], ends)
                kinds.add((len(may), may == ends))
                assert row["id"] in may, (row, may)
        assert {(1, True), (1, False), (2, False)} <= kinds, kinds  # its end, what is sure, and one of two
        said = c.request("POST", "/infill", {**body, "response_fields": [], "top_k": None})[1]  # sure of nothing, and 40 is the usual number
        assert said["content"] == "" and said["tokens_predicted"] == 1 and said["generation_settings"]["top_k"] == 40 and said["generation_settings"]["samplers"] == ["penalties", "top_k", "top_p", "infill"], said
        c.deploy("demo", DEMO, "--compute", "f32")
        # One that is sure of what it says says the same by it.
        greedy, filled = (c.request("POST", "/completion", {"model": "demo", "prompt": SURE, "n_predict": 20, "seed": 3, **more})[1] for more in ({"temperature": 0}, {"samplers": ["top_k", "infill"]}))
        assert filled["content"] == greedy["content"] and "Havana" in filled["content"] and filled["stop_type"] == "eos", (greedy, filled)


@test
def a_gap_that_is_too_long_is_cut_to_what_is_nearest():
    with tempfile.TemporaryDirectory() as folder, Cluster(agents=1, cores=1) as c:
        model = os.path.join(folder, "m")
        first = marked(model)
        c.deploy("code", model, "--compute", "f32", "--max-context", "256")

        def tokens(text):
            return c.request("POST", "/tokenize", {"content": text})[1]["tokens"]
        before, behind = "".join(f"a{i} = {i}\n" for i in range(400)), "".join(f"print({i})\n" for i in range(400))
        asked = {"temperature": 0, "n_predict": 16, "ignore_eos": True}
        room = 256 - 16 - len(MARKS)
        for prefix, suffix, n_prefix, n_suffix in ((before, behind, room - room // 4, room // 4), (before, "x", room - len(tokens("x")), len(tokens("x"))), ("y", behind, len(tokens("y")), room - len(tokens("y")))):
            wanted = [first, *tokens(prefix)[-n_prefix:], first + 1, *tokens(suffix)[:n_suffix], first + 2]
            status, said = c.request("POST", "/infill", {"input_prefix": prefix, "input_suffix": suffix, "input_extra": [{"text": "left out"}], **asked})
            assert status == 200 and said["tokens_evaluated"] == len(wanted) == 240, (said, len(wanted))
            assert said["content"] == c.request("POST", "/completion", {"prompt": wanted, **asked})[1]["content"], said
        status, said = c.request("POST", "/infill", {"input_prefix": before, "input_suffix": behind, **asked, "n_predict": 10 ** 6})
        assert status == 200 and said["tokens_evaluated"] == 128, said


@test
def other_files_go_before_a_gap_as_many_as_there_is_room_for():
    marks = (*MARKS, "<|repo_name|>", "<|file_sep|>")
    with tempfile.TemporaryDirectory() as folder, Cluster(agents=1, cores=1) as c:
        model, plain = os.path.join(folder, "m"), os.path.join(folder, "plain")
        first = marked(model, marks)
        marked(plain)
        c.deploy("code", model, "--compute", "f32", "--max-context", "512")
        c.deploy("plain", plain, "--compute", "f32", "--max-context", "512")

        def tokens(text):
            return c.request("POST", "/tokenize", {"model": "code", "prompt": text, "add_special_tokens": False})[1]["tokens"]
        files = [{"filename": "a.py", "text": "def a():\n    return 1\n"}, {"text": "b = 2 <|file_sep|>"}]
        asked = {"input_prefix": "print(", "input_suffix": ")", "temperature": 0, "n_predict": 4, "ignore_eos": True}
        gap = [first, *tokens("print("), first + 1, *tokens(")"), first + 2]
        alone = [first + 3, *tokens("myproject\n"), first + 4, *tokens("a.py\n" + files[0]["text"]), first + 4, *tokens("filename\n"), *gap]
        status, said = c.request("POST", "/infill", {"model": "code", "input_extra": files[:1], **asked})
        assert status == 200 and said["tokens_evaluated"] == len(alone), (said, alone)
        assert said["content"] == c.request("POST", "/completion", {"model": "code", "prompt": alone, **asked})[1]["content"], said
        status, said = c.request("POST", "/infill", {"model": "code", "input_extra": files, **asked})
        assert status == 200 and said["tokens_evaluated"] > len(alone) + 5, said  # a mark that is spelled is text
        said = c.request("POST", "/infill", {"model": "plain", "input_extra": files[:1], **asked})[1]
        assert said["tokens_evaluated"] == len(tokens("\n\n--- snippet ---\n\n" + files[0]["text"])) + len(gap), said
        many = [{"filename": f"{i}.py", "text": f"x{i} = {i}\n" * 40} for i in range(40)]
        status, said = c.request("POST", "/infill", {"model": "code", "input_extra": many, **asked})
        assert status == 200 and said["tokens_evaluated"] == 512 - 4, said
        long = [{"filename": "long.py", "text": "x = 1\n" * 20000}]  # of one that has no room the end is taken, too
        status, said = c.request("POST", "/infill", {"model": "code", "input_extra": long, **asked})
        assert status == 200 and said["tokens_evaluated"] == 512 - 4, said
        for wrong in ([7], "x", [{"text": 7}], [{"filename": []}]):
            status, said = c.request("POST", "/infill", {"model": "code", "input_extra": wrong, **asked})
            assert status == 400 and said["error"]["param"] == "input_extra", (wrong, said)


main()
