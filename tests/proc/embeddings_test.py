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
        field = "prompt" if path == "/api/embeddings" else "input"
        status, body = c.request("POST", path, {"model": "sense", field: "x " * 9000})
        assert status == 400 and f"However, {field} 0 resulted in" in body["error"], (path, body)


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


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


@test
def texts_are_ranked_and_scored_by_their_rows():
    """As vLLM's, Jina's and llama-server's clients ask it."""
    prompts, rows = golden()
    texts = [p["text"] for p in prompts]
    with Cluster(agents=1, cores=1) as c:
        c.deploy("sense", os.path.join(FOLDER, "hf"), "--compute", "f32")
        near = [cosine(rows[0], row) for row in rows[1:]]
        order = sorted(range(len(near)), key=lambda i: -near[i])
        for path, more in (("/v1/rerank", {"model": "sense"}), ("/rerank", {}), ("/v1/rerank", {"model": "BAAI/sense"}), ("/v1/reranking", {}), ("/reranking", {"model": None})):
            status, body = c.request("POST", path, {"query": texts[0], "documents": texts[1:], **more})
            assert status == 200 and body["model"] == "sense" and body["usage"]["total_tokens"] == sum(len(p["ids"]) for p in prompts), body
            assert [r["index"] for r in body["results"]] == order and [r["document"]["text"] for r in body["results"]] == [texts[1 + i] for i in order], body
            close([r["relevance_score"] for r in body["results"]], [near[i] for i in order])
        status, body = c.request("POST", "/v1/rerank", {"query": texts[0], "documents": [{"text": t} for t in texts[1:]], "top_n": 2, "return_documents": False})
        assert [r["index"] for r in body["results"]] == order[:2] and "document" not in body["results"][0], body
        for one, many in ((texts[0], texts[1:]), ([texts[0]] * len(near), texts[1:])):
            status, body = c.request("POST", "/v1/score", {"model": "sense", "text_1": one, "text_2": many})
            assert status == 200 and [d["index"] for d in body["data"]] == list(range(len(near))), body
            close([d["score"] for d in body["data"]], near)
        first = [cosine(rows[0][:16], row[:16]) for row in rows[1:]]
        status, body = c.request("POST", "/v1/score", {"text_1": texts[0], "text_2": texts[1:], "dimensions": 16})
        assert status == 200 and body["model"] == "sense", body
        close([d["score"] for d in body["data"]], first)
        status, body = c.request("POST", "/rerank", {"query": texts[0], "documents": texts[1:], "dimensions": 16})
        close([r["relevance_score"] for r in body["results"]], sorted(first, reverse=True))
        status, body = c.request("POST", "/embedding", {"content": texts[:2], "embd_normalize": 2})
        assert status == 200 and [r["index"] for r in body] == [0, 1], body
        close(body[0]["embedding"][0], rows[0])
        for path, fields, param in (("/v1/rerank", {"documents": texts}, "query"), ("/v1/rerank", {"query": "x"}, "documents"), ("/v1/rerank", {"query": "x", "documents": []}, "documents"),
                                    ("/v1/rerank", {"query": "x", "documents": ["a", 7]}, "documents"), ("/v1/rerank", {"query": ["x", "y"], "documents": ["a"]}, "query"),
                                    ("/v1/rerank", {"query": "x", "documents": ["a", "word " * 5000]}, "documents"), ("/v1/rerank", {"query": "x", "documents": ["a"], "top_n": 0}, "top_n"),
                                    ("/v1/rerank", {"query": "word " * 5000, "documents": ["a"]}, "query"), ("/rerank", {"query": "x", "documents": ["a"], "max_tokens_per_doc": 9}, "max_tokens_per_doc"),
                                    ("/embedding", {"content": "x", "embd_normalize": -1}, "embd_normalize"), ("/embedding", {"content": "x", "encoding_format": "base64"}, "encoding_format"),
                                    ("/v1/score", {"model": "sense", "text_1": ["a", "b"], "text_2": ["c"]}, "text_1"), ("/v1/score", {"model": 7, "text_1": "a", "text_2": "b"}, "model"), ("/v1/score", {"text_1": "a", "text_2": "b", "dimensions": 0}, "dimensions"), ("/embedding", {}, "content")):
            status, body = c.request("POST", path, fields)
            assert status == 400 and body["error"]["param"] == param and param in body["error"]["message"], (fields, body)
        c.deploy("demo", DEMO)
        status, body = c.request("POST", "/v1/rerank", {"model": "demo", "query": "x", "documents": ["a"]})
        assert status == 400 and "demo" in body["error"]["message"], body
        assert c.request("POST", "/v1/rerank", {"query": "x", "documents": ["a"]})[0] == 400  # which of the two?


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
                                     ({"input": "x", "dimensions": 65}, "dimensions", "1 to 64"), ({"input": "x", "dimensions": 0}, "dimensions", "1 to 64"), ({"input": "x", "dimensions": "8"}, "dimensions", "1 to 64"), ({"input": "x", "encoding_format": "hex"}, "encoding_format", "base64"),
                                     ({"input": "x", "normalize": False}, "normalize", "scaled"), ({"input": "x", "add_special_tokens": False}, "add_special_tokens", "own tokens"), ({"input": "x", "normalize": True, "add_special_tokens": True}, None, None)):
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
