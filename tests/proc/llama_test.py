"""What clients of llama-server and of vLLM ask beside OpenAI's paths: the native completion and its stream, gaps that are filled in, slots, and names with a slash."""
import json
import os
import shutil
import subprocess
import tempfile

from cluster import Cluster, DEMO, SCALE, Stream
from encoders import SHARED
from tap import main, skip, test

STORY = "Once upon a time"


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


def refusals(c):
    for fields, param in (({"n_predict": "x"}, "n_predict"), ({"samplers": ["infill"]}, "samplers"), ({"samplers": 7}, "samplers"), ({"response_fields": "content"}, "response_fields"), ({"response_fields": ["x" * 129]}, "response_fields"), ({"response_fields": ["x"] * 65}, "response_fields"), ({"t_max_predict_ms": "x"}, "t_max_predict_ms"), ({"top_n_sigma": 1}, "top_n_sigma"), ({"repeat_last_n": 64, "presence_penalty": 0.5}, "repeat_last_n"), ({"timings_per_token": True}, "timings_per_token"), ({"n_probs": 3}, "n_probs"), ({"n": 2}, "n"), ({"n_cmpl": 2}, "n_cmpl"), ({"n_indent": 1.5}, "n_indent"),
                          ({"logit_bias": [[1]]}, "logit_bias"), ({"prompt": ["a", "b"]}, "prompt"), ({"prompt": 7}, "prompt"), ({"mirostat": 2}, "mirostat"), ({"image_data": [{"id": 1}]}, "image_data"),
                          ({"model": 7}, "model"), ({"n_predict": 12, "repeat_penalty": -1}, "repeat_penalty")):
        status, said = c.request("POST", "/completion", {"prompt": STORY, **fields})
        assert status == 400 and said["error"]["param"] == param and param in said["error"]["message"], (fields, said)
    status, said = c.request("POST", "/infill", {"input_prefix": "def f(", "input_suffix": "return 1"})
    assert status == 400 and "no tokens that mark a gap" in said["error"]["message"], said
    status, said = c.request("POST", "/v1/completions", {"model": "", "prompt": STORY})
    assert status == 404, said


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
        for samplers in (["top_p", "top_k"], ["top_p", "temperature"], ["min_p", "top_p"], ["top_k", "penalties"], ["top_k", "top_k"], "pk"):
            status, reply = c.request("POST", "/completion", {"prompt": STORY, "samplers": samplers, **some})
            assert status == 400 and reply["error"]["param"] == "samplers", (samplers, reply)
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
        for wrong in ([7], "x", [{"text": 7}], [{"filename": []}]):
            status, said = c.request("POST", "/infill", {"model": "code", "input_extra": wrong, **asked})
            assert status == 400 and said["error"]["param"] == "input_extra", (wrong, said)


main()
