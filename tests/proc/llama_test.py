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
        for more in ({}, {"model": "demo"}, {"model": None}, {"prompt": [STORY]}, {"n_keep": 0, "cache_prompt": True, "id_slot": -1, "n_probs": 0, "samplers": [], "stop": [], "logit_bias": []}):
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


def refusals(c):
    for fields, param in (({"n_predict": "x"}, "n_predict"), ({"samplers": ["top_k"]}, "samplers"), ({"response_fields": ["content"]}, "response_fields"), ({"n_probs": 3}, "n_probs"), ({"n": 2}, "n"), ({"n_cmpl": 2}, "n_cmpl"), ({"n_indent": 4}, "n_indent"),
                          ({"logit_bias": [[1]]}, "logit_bias"), ({"prompt": ["a", "b"]}, "prompt"), ({"prompt": 7}, "prompt"), ({"mirostat": 2}, "mirostat"), ({"image_data": [{"id": 1}]}, "image_data"),
                          ({"model": 7}, "model"), ({"n_predict": 12, "repeat_penalty": -1}, "repeat_penalty")):
        status, said = c.request("POST", "/completion", {"prompt": STORY, **fields})
        assert status == 400 and said["error"]["param"] == param and param in said["error"]["message"], (fields, said)
    status, said = c.request("POST", "/infill", {"input_prefix": "def f(", "input_suffix": "return 1"})
    assert status == 400 and "no tokens that mark a gap" in said["error"]["message"], said
    status, said = c.request("POST", "/v1/completions", {"model": "", "prompt": STORY})
    assert status == 404, said


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


def marked(folder):
    """A model whose vocabulary has marks of a gap; the first one's id."""
    source = os.path.join(os.environ.get("HP_GOLDEN", os.path.join(SHARED, "golden")), "qwen3", "hf")
    if not os.path.exists(source):
        skip("qwen3 is not there (HP_GOLDEN points at models with known answers)")
    shutil.copytree(source, folder)
    with open(os.path.join(folder, "tokenizer.json")) as f:
        tokenizer = json.load(f)
    first = 1 + max(t["id"] for t in tokenizer["added_tokens"])
    tokenizer["added_tokens"] += [{"id": first + i, "content": mark, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False} for i, mark in enumerate(MARKS)]
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


main()
