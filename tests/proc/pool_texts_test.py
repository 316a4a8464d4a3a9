"""Language models in pools: an encoder and a decoder that pools are applied beside each other, cut over two kinds of paced agents, and answer texts of any length by
POST /v1/embeddings under a deadline, with the rows that `hpctl model embed` gives."""
import json
import os
import tempfile
import threading

from cluster import SCALE, Cluster
from encoders import FOLDER, close, golden, pooled_decoder
from tap import main, test

BLOCK_S = 0.002
BUCKETS = [16, 96]


def write(path, value):
    with open(path, "w") as f:
        json.dump(value, f)
    return path


def files(folder, models, slo_s):
    """Two kinds, each measured for its half of the blocks alone: every batch is computed by both."""
    def node(name, kind):
        return {"name": name, "devices": [{"name": "d", "kind": kind, "memory_bytes": 1e9}], "nics": [{"name": "eth0", "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-4}]}

    def profile(seconds, **more):
        def table(measured):
            return {"share": [1], "batch": [1, 2, 4], "seconds": [[seconds, 1.4 * seconds, 2 * seconds] if measured else [None] * 3]}

        return {"format": "hp-profile/1", "model": "m", "layers": [{"name": f"b{i}", "class": f"b{i}", "output_bytes": 8192} for i in range(4)],
                "latency": {kind: {f"b{i}": table((i < 2) == (kind == "X")) for i in range(4)} for kind in ("X", "Y")}, **more}

    cluster = write(os.path.join(folder, "cluster.json"), {"format": "hp-cluster/1", "nodes": [node("x0", "X"), node("x1", "X"), node("y0", "Y"), node("y1", "Y")]})
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
                close(body["data"][0]["embedding"], alone[model][at], 2e-5)
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
    assert got == 429 and "would be done in" in body["error"]["message"], (got, body)
    other, some = (c.hpctl("key", "create", name, "--models", name)["key"] for name in ("bert", "decoder"))
    assert embed(c, "bert", "x", other)[0] == 200
    got, body = embed(c, "bert", "x", some)
    assert got == 403, (got, body)
    c.hpctl("key", "rm", "bert")
    c.hpctl("key", "rm", "decoder")


@test
def texts_are_embedded_by_pools_in_buckets_of_lengths_as_the_model_does_alone():
    prompts, rows = golden()
    with tempfile.TemporaryDirectory(prefix="hp-texts-") as folder:
        models = {"bert": os.path.join(FOLDER, "model-f32.gguf"), "decoder": pooled_decoder(os.path.join(folder, "m"))}
        cluster, profile, workload = files(folder, models, 1 * SCALE)
        texts = ["x", "The capital of France is", "a longer text, of some more words than the others, for the longer bucket of the two that are there"]
        with Cluster(agents=4, cores=1, pace=cluster, profile=profile) as c:
            alone = {name: [r["embedding"] for r in c.hpctl("model", "embed", path, *texts, "--compute", "f32")] for name, path in models.items()}
            told = c.hpctl("apply", "-f", workload)
            assert sorted({(s["model"], s["stage"]) for s in told["current"]["shares"]}) == [("bert", 0), ("bert", 1), ("decoder", 0), ("decoder", 1)], told
            known_rows(c, prompts, rows)
            many_at_once(c, models, texts, alone)
            refusals(c, texts)
            report = c.hpctl("load", "bert", "--rate", "40", "--seconds", "1")
            assert report["attainment"] >= 0.9, report
            c.kill("coordinator")
            c.hpctl("local", "start", "--coordinator")
            c.wait("pools serve again", lambda: embed(c, "bert", texts[0])[0] == 200)
            many_at_once(c, models, texts, alone)
            shared = {m["name"]: m for m in c.hpctl("pools")["models"]}
            assert shared["bert"]["on_time"] > 0 and shared["decoder"]["on_time"] > 0, shared


main()
