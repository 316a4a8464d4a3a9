"""Language models as networks, by `hpctl model run` on their GGUF files and folders ($HP_GOLDEN, $HP_GOLDEN_FAMILIES): the known rows and probabilities, whole and cut
into stages, alone and padded beside longer texts; and what has no such form is named."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from tap import main, skip, test

HPCTL = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "hpctl")
SHARED = os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared"))
GOLDEN = os.environ.get("HP_GOLDEN", os.path.join(SHARED, "golden"))
FAMILIES = os.environ.get("HP_GOLDEN_FAMILIES", os.path.join(SHARED, "golden-families"))
ROW, SCORE = 1e-5, 2e-4  # of the largest; of a logarithm
DECODERS = [(GOLDEN, name) for name in ("gpt2", "llama2", "llama3", "llama-yarn", "mistral-window", "qwen2", "qwen3")] + [
    (FAMILIES, name) for name in ("gemma2", "gemma3", "granite", "phi3", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek2", "gpt_oss", "gpt_oss-mxfp4")]
LONGEST = {"phi3": 48}  # tokens: beyond them its angles are others


def prompts_of(root, name):
    at = os.path.join(root, name, "expected.json")
    if not os.path.exists(at):
        skip(f"{at} is not there (HP_GOLDEN and HP_GOLDEN_FAMILIES point at models with known answers)")
    with open(at) as f:
        return [p for p in json.load(f)["prompts"] if len(p["ids"]) <= LONGEST.get(name, 1 << 20)]


def path_of(root, name):
    gguf = os.path.join(root, name, "model-f32.gguf")
    return gguf if os.path.exists(gguf) else os.path.join(root, name, "hf")


GPU = {"HP_CUDA_PLUGIN": os.path.join(os.path.dirname(HPCTL), "tests", "cuda_on_cpu", "libhp-cuda.so")}  # the stand-in


def run(model, texts, *options, **variables):
    """Texts of ids in one batch, each padded to the longest."""
    longest = max(map(len, texts))
    ids, mask = (np.array([row(t) + [0] * (longest - len(t)) for t in texts], np.int64) for row in (list, lambda t: [1] * len(t)))
    with tempfile.TemporaryDirectory() as folder:
        given, out = (os.path.join(folder, name) for name in ("in.npz", "out.npz"))
        np.savez(given, input_ids=ids, attention_mask=mask)
        done = subprocess.run([HPCTL, "model", "run", model, "--input", given, "-o", out, *options], capture_output=True, text=True, timeout=60, env={**os.environ, **variables})
        if done.returncode:
            return done.stderr
        made = np.load(out)
        return {k: made[k] for k in made}


def scores_of(logits, ids):
    x = logits.astype(np.float64)
    x -= x.max(1, keepdims=True)
    x -= np.log(np.exp(x).sum(1, keepdims=True))
    return np.array([0] + [x[i, ids[i + 1]] for i in range(len(ids) - 1)])


@test
def an_encoders_rows_are_the_known_ones_whole_cut_and_padded():
    prompts = prompts_of(FAMILIES, "bert")
    for name in ("model-f32.gguf", "hf"):
        for options in ((), ("--stages", "3"), ("--compute", "f32-reference")):
            rows = run(os.path.join(FAMILIES, "bert", name), [p["ids"] for p in prompts], *options)["embedding"]
            for p, row in zip(prompts, rows):
                wanted = np.load(os.path.join(FAMILIES, "bert", p["embedding"]))
                off = abs(row / np.linalg.norm(row) - wanted).max() / abs(wanted).max()
                assert off <= ROW, (name, options, len(p["ids"]), off)


@test
def decoders_say_how_likely_each_token_is_as_their_known_logits_do():
    for root, name in DECODERS:
        prompts = prompts_of(root, name)
        made = run(path_of(root, name), [p["ids"] for p in prompts])
        assert isinstance(made, dict), (name, made)
        for p, scores in zip(prompts, made["logprobs"]):
            wanted = scores_of(np.load(os.path.join(root, name, p["logits"])), p["ids"])
            off = abs(scores[:len(wanted)] - wanted).max()
            assert off <= SCORE, (name, len(p["ids"]), off)


@test
def only_the_tokens_of_texts_are_scored_and_some_at_a_time():
    prompts = sorted(prompts_of(FAMILIES, "gemma2"), key=lambda p: len(p["ids"]))[:3]
    path = path_of(FAMILIES, "gemma2")
    made, plain = (run(path, [p["ids"] for p in prompts], *options) for options in ((), ("--compute", "f32-reference")))
    for p, scores, best, loops in zip(prompts, made["logprobs"], made["likeliest"], plain["logprobs"]):
        n = len(p["ids"])
        logits = np.load(os.path.join(FAMILIES, "gemma2", p["logits"]))
        assert not scores[n:].any() and not best[n:].any() and (best[1:n] == logits.argmax(1)[:n - 1]).all(), (n, scores, best)
        assert abs(scores[:n] - loops[:n]).max() <= SCORE, n
    profiled = subprocess.run([HPCTL, "profile", "model", path, "--local", "--lengths", "512", "--batches", "1", "--budget", "0.1", "--blocks", "64", "-o", "json"], capture_output=True, text=True, timeout=60)
    assert profiled.returncode == 0, profiled.stderr
    most = json.loads(profiled.stdout)["layers"][-1]["activation_bytes"]
    assert most < 512 * logits.shape[1] * 4 / 2, (most, logits.shape)  # of the logits of all 512 tokens not half


@test
def a_gpu_gives_the_known_rows_and_probabilities():
    def shortest(root, name):
        return min(prompts_of(root, name), key=lambda p: len(p["ids"]))

    device = ("--device", "cuda:0,mem=64MiB")
    p = shortest(FAMILIES, "bert")
    row, wanted = run(path_of(FAMILIES, "bert"), [p["ids"]], *device, **GPU)["embedding"][0], np.load(os.path.join(FAMILIES, "bert", p["embedding"]))
    assert abs(row / np.linalg.norm(row) - wanted).max() <= ROW * abs(wanted).max()
    for root, name in DECODERS if "HP_ALL_CASES" in os.environ else ((GOLDEN, "llama2"), (FAMILIES, "gemma2"), (FAMILIES, "mixtral"), (FAMILIES, "deepseek2"), (FAMILIES, "gpt_oss-mxfp4")):
        p = shortest(root, name)
        made = run(path_of(root, name), [p["ids"]], *device, **GPU)
        assert isinstance(made, dict), (name, made)
        wanted = scores_of(np.load(os.path.join(root, name, p["logits"])), p["ids"])
        off = abs(made["logprobs"][0][:len(wanted)] - wanted).max()
        assert off <= SCORE, (name, off)


@test
def weights_in_blocks_give_what_the_engine_makes_of_them():
    ids = prompts_of(GOLDEN, "quantised")[0]["ids"]
    for name in ("model-q8_0.gguf", "model-q4_k_m.gguf"):
        model = os.path.join(GOLDEN, "quantised", name)
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "logits.npy")
            subprocess.run([HPCTL, "model", "logits", model, "--ids", ",".join(map(str, ids)), "--compute", "f32", "-o", out], check=True, capture_output=True, timeout=60)
            wanted = scores_of(np.load(out), ids)
        off = abs(run(model, [ids])["logprobs"][0] - wanted).max()
        assert off <= SCORE, (name, off)


@test
def mixtures_cut_into_stages_give_the_same_bits_and_the_plain_loops_name_what_they_lack():
    for name, says in (("mixtral", "route is not among the plain loops"), ("deepseek2", "join_heads is not"), ("gpt_oss", "route is not")):
        ids, path = prompts_of(FAMILIES, name)[0]["ids"], os.path.join(FAMILIES, name, "hf")
        whole, cut = (run(path, [ids], *options)["logprobs"] for options in ((), ("--stages", "5")))
        assert (whole == cut).all(), name
        got = run(path, [ids], "--compute", "f32-reference")
        assert isinstance(got, str) and says in got, (name, got)


main()
