"""Shares of GPUs in pools, as the stand-in for CUDA runs them: a language model cut between a CPU and two parts of a GPU, served, and measured there."""
import os
import tempfile

from cluster import SCALE
from encoders import FOLDER, close, golden
from gpu_agents import gpu_beside
from networks import write
from tap import main, test

GPU, BLOCK_S = "CUDA-stand-in", 0.05
MODEL = os.path.join(FOLDER, "model-f32.gguf")


def kind_of(c, agent):
    return c.hpctl("node", "describe", agent)["devices"][0]["kind"]


def files(folder, cpu):
    """The CPU is measured for the first half of the blocks alone, the GPU, whole and in halves, for the second."""
    def table(shares, measured):
        s = BLOCK_S / (4 if shares == [1] else 1)
        return {"share": shares, "batch": [1, 2], "seconds": [[s, 1.5 * s] if measured else [None] * 2 for _ in shares]}

    profile = {"format": "hp-profile/1", "model": "m", "length": 16, "layers": [{"name": f"b{i}", "class": f"b{i}", "output_bytes": 4096} for i in range(4)],
               "latency": {kind: {f"b{i}": table(shares, (i < 2) == (kind == cpu)) for i in range(4)} for kind, shares in ((cpu, [1]), (GPU, [1, 2]))}}
    write(os.path.join(folder, "profile.json"), profile)
    return write(os.path.join(folder, "workload.json"), {
        "format": "hp-workload/1", "slo_margin": 0.4, "max_stages": 2, "shares": {GPU: [1, 2]},
        "models": [{"name": "bert", "model": MODEL, "profile": "profile.json", "weight": 1, "slo_s": 5 * SCALE, "lengths": {"buckets": [16]}}]})


@test
def a_text_model_is_cut_between_a_cpu_and_parts_of_a_gpu():
    prompts, rows = golden()
    short = [(p, row) for p, row in zip(prompts, rows) if len(p["ids"]) <= 16]
    assert short
    with gpu_beside("--device", "cuda:0,mem=64MiB", CUDA_ON_CPU="sms=16") as (c, _), tempfile.TemporaryDirectory() as folder:
        told = c.hpctl("apply", "-f", files(folder, kind_of(c, "a0")))
        shares = told["current"]["shares"]
        assert {(s["stage"], s["on"].split("/")[0]) for s in shares} == {(0, "a0"), (1, "gpu")}, shares
        assert [s["part"] for s in shares if s["stage"] == 1] == ["1/2", "1/2"], shares
        for p, row in short * 2:
            status, body = c.request("POST", "/v1/embeddings", {"model": "bert", "input": p["ids"]})
            assert status == 200, body
            close(body["data"][0]["embedding"], row, 1e-4)
        assert sum(s["batches"] for s in c.hpctl("pools")["current"]["shares"] if s["stage"] == 1) >= len(short), c.hpctl("pools")
        c.hpctl("pools", "rm")


@test
def a_gpu_is_measured_whole_and_in_parts():
    golden()
    with gpu_beside("--device", "cuda:0/share=1/2,mem=64MiB", CUDA_ON_CPU="sms=16") as (c, _):
        told = c.hpctl("profile", "model", MODEL, "--lengths", "16", "--batches", "1", "--shares", "1,2", "--agents", "gpu", "--budget", "1")
        times = told["latency"][f"{GPU}-1of2"]
        assert all(t["share"] == [1, 2] and all(s[0] > 0 for s in t["seconds"]) for t in times.values()), times


main()
