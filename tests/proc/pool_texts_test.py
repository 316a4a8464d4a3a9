"""Language models in pools: an encoder, a decoder that pools and one that scores are applied beside each other, cut over two kinds of paced agents, and answer texts of
any length under a deadline: POST /v1/embeddings with the rows that `hpctl model embed` gives, POST /v1/completions with how likely each token of a prompt is."""
import ast
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time

from cluster import ROOT, SCALE, Cluster
from encoders import FOLDER, SHARED, close, golden, pooled_decoder
from networks import write
from tap import main, skip, test

BLOCK_S = 0.002
BUCKETS = [16, 96]


def files(folder, models, slo_s, each=3):
    """Two kinds, each measured for its half of the blocks alone: every batch is computed by both."""
    def node(name, kind):
        return {"name": name, "devices": [{"name": "d", "kind": kind, "memory_bytes": 1e9}], "nics": [{"name": "eth0", "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-4}]}

    def profile(seconds, **more):
        def table(measured):
            return {"share": [1], "batch": [1, 2, 4], "seconds": [[seconds, 1.4 * seconds, 2 * seconds] if measured else [None] * 3]}

        return {"format": "hp-profile/1", "model": "m", "layers": [{"name": f"b{i}", "class": f"b{i}", "output_bytes": 8192} for i in range(4)],
                "latency": {kind: {f"b{i}": table((i < 2) == (kind == "X")) for i in range(4)} for kind in ("X", "Y")}, **more}

    cluster = write(os.path.join(folder, "cluster.json"), {"format": "hp-cluster/1", "nodes": [*(node(f"{kind}{i}", kind.upper()) for kind in "xy" for i in range(each))]})
    both = write(os.path.join(folder, "profile.json"), profile(2 * BLOCK_S, length=96, lengths={"16": profile(BLOCK_S)}))
    workload = write(os.path.join(folder, "workload.json"), {
        "format": "hp-workload/1", "slo_margin": 0.4, "max_stages": 2,
        "models": [{"name": name, "model": path, "profile": "profile.json", "weight": 1, "slo_s": slo_s, "lengths": {"buckets": BUCKETS}} for name, path in models.items()]})
    return cluster, both, workload


def embed(c, model, texts, key=None, **fields):
    headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + key} if key else {})}
    return c.request("POST", "/v1/embeddings", {"model": model, "input": texts, **fields}, headers=headers)


def many_at_once(c, models, texts, alone):
    failed = []

    def client(model, n):
        try:
            for i in range(3):
                at = (n + i) % len(texts)
                status, body = embed(c, model, texts[at])
                assert status == 200, body
                close(body["data"][0]["embedding"], alone[model][at], 1e-5)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=client, args=(m, n)) for m in models for n in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed[0]


def known_rows(c, prompts, rows):
    """Of one request several inputs, as texts and as ids."""
    for given in ([p["text"] for p in prompts], [p["ids"] for p in prompts]):
        status, body = embed(c, "bert", given)
        assert status == 200 and [d["index"] for d in body["data"]] == list(range(len(rows))), body
        for d, wanted in zip(body["data"], rows):
            close(d["embedding"], wanted, 1e-4)
        assert body["usage"]["prompt_tokens"] == sum(len(p["ids"]) for p in prompts), body["usage"]


def refusals(c, texts):
    for fields, status, says in (({"model": "bert", "input": "x " * 120}, 400, "maximum context length is 96"), ({"model": "bert", "input": []}, 400, "is empty"),
                                 ({"model": "bert", "input": [[1, 99999]]}, 400, "no token id"), ({"model": "none", "input": "x"}, 404, "none")):
        got, body = c.request("POST", "/v1/embeddings", fields)
        assert got == status and says in body["error"]["message"], (fields, got, body)
    # So many that the last would be late: nothing of the request is computed further.
    got, body = embed(c, "bert", texts * 400)
    assert got == 429 and "would be done in" in body["error"]["message"], (got, str(body)[:300])
    other, some = (c.hpctl("key", "create", name, "--models", name)["key"] for name in ("bert", "decoder"))
    assert embed(c, "bert", "x", other)[0] == 200
    got, body = embed(c, "bert", "x", some)
    assert got == 403, (got, body)
    c.hpctl("key", "rm", "bert")
    c.hpctl("key", "rm", "decoder")


SCORED = os.path.join(os.environ.get("HP_GOLDEN", os.path.join(SHARED, "golden")), "qwen3")


def matrix(path):
    with open(path, "rb") as f:
        data = f.read()
    n, = struct.unpack("<H", data[8:10])
    shape = ast.literal_eval(data[10:10 + n].decode())["shape"]
    values = struct.unpack(f"<{shape[0] * shape[1]}f", data[10 + n:])
    return [values[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]


def known_scores(prompt):
    """Of each token but the first its logarithmic probability, and that of the likeliest one."""
    rows = []
    for logits, token in zip(matrix(os.path.join(SCORED, prompt["logits"])), prompt["ids"][1:]):
        top = max(logits)
        whole = top + math.log(sum(math.exp(x - top) for x in logits))
        rows.append((logits[token] - whole, top - whole))
    return rows


def complete(c, prompt, **fields):
    return c.request("POST", "/v1/completions", {"model": "scorer", "prompt": prompt, **fields})


def scores_are_the_known_ones(c):
    with open(os.path.join(SCORED, "expected.json")) as f:
        prompts = [p for p in json.load(f)["prompts"] if 1 < len(p["ids"]) < BUCKETS[-1]]
    status, body = complete(c, [p["ids"] for p in prompts], echo=True, max_tokens=0, logprobs=1)
    assert status == 200 and len(body["choices"]) == len(prompts) > 1, body
    for choice, prompt in zip(body["choices"], prompts):
        told = choice["logprobs"]
        assert len(told["tokens"]) == len(prompt["ids"]) and told["token_logprobs"][0] is None, told
        for own, tops, (wanted, best) in zip(told["token_logprobs"][1:], told["top_logprobs"][1:], known_scores(prompt)):
            assert abs(own - wanted) < 2e-4 and abs(max(tops.values()) - best) < 2e-4, (own, wanted, tops, best)
    assert body["usage"]["prompt_tokens"] == sum(len(p["ids"]) for p in prompts) and body["usage"]["completion_tokens"] == 0, body["usage"]
    for fields, says in (({"max_tokens": 5}, "max_tokens"), ({"echo": True, "max_tokens": 0, "logprobs": 3}, "at most 1"),
                         ({"echo": True, "max_tokens": 0, "logprobs": 1, "prompt_logprobs": 1}, "prompt_logprobs")):
        status, body = complete(c, "x", **fields)
        assert status == 400 and (says in body["error"]["message"] or says == body["error"]["param"]), (fields, body)
    status, body = c.request("POST", "/v1/completions", {"model": "bert", "prompt": "x"})
    assert status == 400 and "/v1/embeddings" in body["error"]["message"], body
    status, body = embed(c, "scorer", "x")
    assert status == 400 and "no pooling" in body["error"]["message"], body


def models_are_listed_and_tell_their_tokens(c, prompts):
    _, listed = c.request("GET", "/v1/models")
    assert {(m["id"], m["task"], m["max_model_len"]) for m in listed["data"]} == {("bert", "embed", 96), ("decoder", "embed", 96), ("scorer", "score", 96)}, listed
    assert all(abs(time.time() - m["created"]) < 600 * SCALE and m["created_at"].startswith("20") for m in listed["data"]), listed  # when they were applied
    assert c.request("GET", "/v1/models/bert")[1]["id"] == "bert" and c.request("GET", "/v1/models/nobody")[0] == 404
    assert {m["name"] for m in c.request("GET", "/api/tags")[1]["models"]} == {"bert", "decoder", "scorer"}
    status, told = c.request("POST", "/tokenize", {"model": "bert", "prompt": prompts[0]["text"]})
    assert status == 200 and told["tokens"] == prompts[0]["ids"] and told["max_model_len"] == 96, (told, prompts[0])
    assert c.request("POST", "/detokenize", {"model": "scorer", "tokens": [1, 2]})[0] == 200
    assert c.request("GET", "/props?model=bert")[1]["model_alias"] == "bert"
    status, body = c.request("POST", "/tokenize", {"prompt": "x"})
    assert status == 400 and "several models" in body["error"]["message"], body


@test
def texts_are_embedded_by_pools_in_buckets_of_lengths_as_the_model_does_alone():
    prompts, rows = golden()
    with tempfile.TemporaryDirectory(prefix="hp-texts-") as folder:
        models = {"bert": os.path.join(FOLDER, "model-f32.gguf"), "decoder": pooled_decoder(os.path.join(folder, "m"))}
        applied = {**models, "scorer": os.path.join(SCORED, "hf")}
        cluster, profile, workload = files(folder, applied, 1 * SCALE)
        texts = ["x", "The capital of France is", "a longer text, of some more words than the others, for the longer bucket of the two that are there"]
        with Cluster(agents=6, cores=1, pace=cluster, profile=profile) as c:
            alone = {name: [r["embedding"] for r in c.hpctl("model", "embed", path, *texts, "--compute", "f32")] for name, path in models.items()}
            told = c.hpctl("apply", "-f", workload)
            assert sorted({(s["model"], s["stage"]) for s in told["current"]["shares"]}) == [(m, s) for m in ("bert", "decoder", "scorer") for s in (0, 1)], told
            known_rows(c, prompts, rows)
            models_are_listed_and_tell_their_tokens(c, prompts)
            many_at_once(c, models, texts, alone)
            refusals(c, texts)
            scores_are_the_known_ones(c)
            report = c.hpctl("load", "bert", "--rate", "40", "--seconds", "1")
            assert report["attainment"] >= 0.9, report
            told = c.hpctl("pools")
            assert {tuple(m["lengths"]) for m in told["models"]} == {(96, 16)} and {m["mask"] for m in told["models"]} == {"attention_mask"}, told["models"]
            assert all(s["batches"] > 0 and 0.2 < s["actual_s"] / s["planned_s"] < 5 for s in told["current"]["shares"]), told["current"]["shares"]
            c.kill("coordinator")
            c.hpctl("local", "start", "--coordinator")
            c.wait("pools serve again", lambda: embed(c, "bert", texts[0])[0] == 200)
            many_at_once(c, models, texts, alone)
            shared = {m["name"]: m for m in c.hpctl("pools")["models"]}
            assert shared["bert"]["on_time"] > 0 and shared["decoder"]["on_time"] > 0, shared


def resident(pid):
    """Bytes of a process: of its own, and of files that it maps."""
    with open(f"/proc/{pid}/status") as f:
        kb = {line.split(":")[0]: int(line.split()[1]) for line in f if line.startswith(("RssAnon", "RssFile"))}
    return 1024 * kb["RssAnon"], 1024 * kb["RssFile"]


@test
def a_share_holds_its_blocks_of_a_language_model_and_no_more():
    try:
        import numpy  # noqa: F401: the model is made with it
    except ImportError:
        skip("no numpy")
    with tempfile.TemporaryDirectory(prefix="hp-held-") as folder:
        model = os.path.join(folder, "m.gguf")
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "make_random_model.py"), model, "--type", "bf16", "--blocks", "8", "--width", "768", "--heads", "12",
                        "--kv-heads", "12", "--mlp", "2048", "--vocabulary", "2048", "--context", "256"], check=True, capture_output=True)
        size = os.path.getsize(model)
        cluster, profile, workload = files(folder, {"m": model}, 2 * SCALE, each=1)
        with Cluster(agents=2, cores=1, pace=cluster, profile=profile) as c:
            pids = c.pids()
            before = {name: resident(pid) for name, pid in pids.items()}
            told = c.hpctl("apply", "-f", workload)
            shares = {s["on"].rsplit("/", 1)[0]: s for s in told["current"]["shares"]}
            assert len(shares) == 2, shares
            status, body = c.request("POST", "/v1/completions", {"model": "m", "prompt": "some words to be scored", "echo": True, "max_tokens": 0, "logprobs": 1})
            assert status == 200, body
            for name in shares:
                own, mapped = (now - then for now, then in zip(resident(pids[name]), before[name]))
                # Half of the file is mapped, in its own format; beside it lie values of batches and buffers, and no float32 of any weights.
                assert 0.4 * size < mapped < 0.65 * size and own < 0.4 * size, (name, size, own, mapped)
                assert abs(shares[name]["memory_bytes"] - size / 2) < 0.1 * size, (shares[name], size)


@test
def a_model_that_no_agent_holds_whole_is_measured_in_sections_and_served_cut():
    model = os.path.join(os.path.dirname(SCORED), "quantised", "model-f32.gguf")
    size = os.path.getsize(model)
    with tempfile.TemporaryDirectory(prefix="hp-large-") as folder:
        with Cluster(agents=2, cores=1, memory=int(0.8 * size)) as c:
            told = c.hpctl("profile", "model", model, "--lengths", "16", "--batches", "1,2", "--budget", "1")
            assert not told["failed"] and sum(l.get("param_bytes", 0) for l in told["layers"]) > 0.95 * size, told
            assert all(row["sections"] > 1 and row["runs"] >= 11 for row in told["measured"]), told["measured"]
            workload = write(os.path.join(folder, "workload.json"), {
                "format": "hp-workload/1", "slo_margin": 0.4, "max_stages": 2,
                "models": [{"name": "m", "model": model, "weight": 1, "slo_s": 4 * SCALE, "lengths": {"buckets": [16]}}]})
            told = c.hpctl("apply", "-f", workload)
            assert sorted(s["stage"] for s in told["current"]["shares"]) == [0, 1], told["current"]["shares"]
            status, body = c.request("POST", "/v1/completions", {"model": "m", "prompt": "some words", "echo": True, "max_tokens": 0, "logprobs": 1})
            assert status == 200 and len(body["choices"][0]["logprobs"]["tokens"]) > 1, body


@test
def lengths_without_a_profile_are_measured_by_the_agents_once_and_kept():
    prompts, rows = golden()
    with tempfile.TemporaryDirectory(prefix="hp-lengths-") as folder, Cluster(agents=1, cores=1) as c:
        model = os.path.join(FOLDER, "model-f32.gguf")

        def workload(buckets):
            return write(os.path.join(folder, "workload.json"), {
                "format": "hp-workload/1", "slo_margin": 0.4, "max_stages": 1,
                "models": [{"name": "bert", "model": model, "weight": 1, "slo_s": 2 * SCALE, "lengths": {"buckets": buckets}}]})

        told = c.hpctl("profile", "model", model, "--lengths", "16,48", "--batches", "1,2", "--budget", "1")
        assert told["length"] == 48 and list(told["lengths"]) == ["16"] and told["lengths"]["16"]["length"] == 16, told
        assert told["bounds"] == told["lengths"]["16"]["bounds"] and told["measured"] and told["lengths"]["16"]["measured"], told
        told = c.hpctl("apply", "-f", workload([16, 48, 96]))
        # Only the length that nobody had measured was; each share knows what each length takes.
        assert sorted(row["dims"] for row in c.hpctl("profile", "ls")) == [f'{{"tokens":{n}}}' for n in (16, 48, 96)], c.hpctl("profile", "ls")
        known_rows(c, prompts, rows)
        load = c.hpctl("load", "bert", "--rate", "20", "--seconds", "1")
        assert load["attainment"] >= 0.9, load
        c.hpctl("pools", "rm")
        assert c.hpctl("plan", "diff", "-f", workload([96, 16]))["next"]
        assert len(c.hpctl("profile", "ls")) == 3


main()
