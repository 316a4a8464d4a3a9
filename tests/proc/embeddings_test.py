"""An encoder over real agents: POST /v1/embeddings gives the known rows, through one stage and through several, and refusals say what to do."""
import base64
import os
import struct
import tempfile

from cluster import Cluster, DEMO
from encoders import FOLDER, close, golden, pooled_decoder
from tap import main, test

def embed(c, **fields):
    return c.request("POST", "/v1/embeddings", {"model": "sense", **fields})


def claims(c, prompts, rows):
    texts = [p["text"] for p in prompts]
    status, body = embed(c, input=texts)
    assert status == 200 and body["object"] == "list" and body["model"] == "sense", body
    assert [d["index"] for d in body["data"]] == list(range(len(texts))) and {d["object"] for d in body["data"]} == {"embedding"}, body
    for d, wanted in zip(body["data"], rows):
        close(d["embedding"], wanted)
    tokens = sum(len(p["ids"]) for p in prompts)
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}, body["usage"]
    status, body = embed(c, input=texts[0], encoding_format="base64")
    close(struct.unpack("<64f", base64.b64decode(body["data"][0]["embedding"])), rows[0])
    status, body = embed(c, input=prompts[1]["ids"])
    close(body["data"][0]["embedding"], rows[1])
    status, body = embed(c, input=[p["ids"] for p in prompts] * 10, encoding_format="float")
    assert status == 200 and len(body["data"]) == 10 * len(prompts), body
    for i, d in enumerate(body["data"]):
        close(d["embedding"], rows[i % len(rows)])
    status, body = c.request("POST", "/api/embed", {"model": "sense:latest", "input": texts[:2]})
    assert status == 200 and body["model"] == "sense" and body["prompt_eval_count"] == sum(len(p["ids"]) for p in prompts[:2]), body
    for row, wanted in zip(body["embeddings"], rows):
        close(row, wanted)
    status, body = c.request("POST", "/api/embeddings", {"model": "sense", "prompt": texts[0]})
    close(body["embedding"], rows[0])
    status, body = c.request("POST", "/api/show", {"model": "sense"})
    assert status == 200 and body["template"] == "" and body["capabilities"] == ["embedding"] and body["model_info"]["bert.embedding_length"] == 64, body
    for path in ("/api/embed", "/api/embeddings"):
        status, body = c.request("POST", path, {"model": "sense"})
        assert status == 400 and "is missing" in body["error"], body


@test
def rows_are_the_known_ones_through_one_stage_and_three():
    prompts, rows = golden()
    with Cluster(agents=3, cores=1) as c:
        for agents, model in (("a0,a1,a2", os.path.join(FOLDER, "hf")), ("a1", os.path.join(FOLDER, "model-f32.gguf"))):
            c.deploy("sense", model, "--agents", agents, "--compute", "f32")
            claims(c, prompts, rows)
            c.hpctl("undeploy", "sense")


@test
def a_decoder_that_pools_serves_what_it_gives_alone():
    with tempfile.TemporaryDirectory() as folder, Cluster(agents=2, cores=1) as c:
        model, texts = pooled_decoder(os.path.join(folder, "m")), ["The capital of France is", "x", "a longer text, of some more words than the others"]
        alone = c.hpctl("model", "embed", model, *texts, "--compute", "f32")
        c.deploy("sense", model, "--agents", "a0,a1", "--compute", "f32")
        status, body = embed(c, input=texts * 20)
        assert status == 200 and len(body["data"]) == 60, body
        for i, d in enumerate(body["data"]):
            close(d["embedding"], alone[i % 3]["embedding"], 1e-5)
        status, body = c.request("POST", "/v1/completions", {"model": "sense", "prompt": "x"})
        assert status == 400 and "writes no text" in body["error"]["message"], body


@test
def rows_are_shortened_where_a_request_asks_for_fewer_dimensions():
    golden()
    with Cluster(agents=1, cores=1) as c:
        c.deploy("sense", os.path.join(FOLDER, "hf"), "--compute", "f32")
        whole = embed(c, input="a text")[1]["data"][0]["embedding"]
        length = sum(v * v for v in whole[:24]) ** 0.5
        status, body = embed(c, input="a text", dimensions=24)
        assert status == 200, body
        close(body["data"][0]["embedding"], [v / length for v in whole[:24]], 1e-5)
        status, body = embed(c, input="a text", dimensions=24, encoding_format="base64")
        assert status == 200 and len(base64.b64decode(body["data"][0]["embedding"])) == 24 * 4, body
        status, body = embed(c, input="a text", dimensions=len(whole))
        assert status == 200 and body["data"][0]["embedding"] == whole, body


@test
def what_cannot_be_embedded_is_refused_in_words():
    prompts, _ = golden()
    with Cluster(agents=1, cores=1) as c:
        said = c.run("deploy", os.path.join(FOLDER, "hf"), "--name", "sense")
        assert said.returncode == 0 and "/v1/embeddings" in said.stdout and "hpctl run" not in said.stdout, said
        c.deploy("demo", DEMO)
        for fields, param, words in (({"input": []}, "input", "is empty"), ({}, "input", "is missing"), ({"input": ""}, None, None), ({"input": [[1, 480]]}, "input", "no token id"),
                                     ({"input": {"a": 1}}, "input", "must be a text, token ids, or a list of these"), ({"input": 3}, "input", "must be a text"), ({"input": ["x", 3]}, "input", "must be a text"), ({"input": "x " * 400}, "input", "maximum context length is 128"),
                                     ({"input": "x", "dimensions": 65}, "dimensions", "1 to 64"), ({"input": "x", "dimensions": 0}, "dimensions", "1 to 64"), ({"input": "x", "dimensions": "8"}, "dimensions", "1 to 64"), ({"input": "x", "encoding_format": "hex"}, "encoding_format", "base64")):
            status, body = embed(c, **fields)
            if param is None:  # the marks around an empty text are tokens
                assert status == 200, body
                continue
            assert status == 400 and body["error"]["param"] == param and words in body["error"]["message"], (fields, body)
        status, body = c.request("POST", "/v1/embeddings", {"model": "demo", "input": "x"})
        assert status == 400 and "embeddings are made by encoders" in body["error"]["message"], body
        status, body = c.request("POST", "/v1/embeddings", {"model": "none", "input": "x"})
        assert status == 404 and body["error"]["code"] == "model_not_found", body
        loaded = c.run("load", "sense", "--rate", "5", "--seconds", "2")
        assert loaded.returncode == 1 and "makes embeddings" in loaded.stderr and "hpctl ps" in loaded.stderr, (loaded.returncode, loaded.stderr)
        status, body = c.request("POST", "/v1/completions", {"model": "sense", "prompt": "x"})
        assert status == 400 and "POST /v1/embeddings" in body["error"]["message"], body
        status, body = c.request("POST", "/v1/chat/completions", {"model": "sense", "messages": [{"role": "user", "content": "x"}]})
        assert status == 400 and "POST /v1/embeddings" in body["error"]["message"] and body["error"]["param"] == "model", body


main()
