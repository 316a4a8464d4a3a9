"""`hpctl model convert` against known answers: what it writes of a folder computes and tokenizes as the folder does, and what it quantises is no further
from float32 than the files of the format's usual makers ($HP_GOLDEN/quantised), by KL divergence of the next token's probabilities."""
import base64
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from tap import main, skip, test

HPCTL = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "hpctl")
SHARED = os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared"))
GOLDEN = os.environ.get("HP_GOLDEN", os.path.join(SHARED, "golden"))
MORE_GOLDEN = os.environ.get("HP_GOLDEN_FAMILIES", os.path.join(SHARED, "golden-families"))
QUANTISED = os.path.join(GOLDEN, "quantised")
DEMO = os.path.join(ROOT, "examples", "demo-model", "demo-q8_0.gguf")


def hpctl(*words, stdin=None):
    run = subprocess.run([HPCTL, *map(str, words)], input=stdin, capture_output=True, timeout=300)
    assert run.returncode == 0, f"hpctl {' '.join(map(str, words))[:200]}: exit {run.returncode}: {run.stderr.decode(errors='replace')[:500]}"
    return run.stdout


def convert(source, out, kind, *options):
    return json.loads(hpctl("model", "convert", source, out, "--type", kind, "-o", "json", *options))


def lines(verb, model, values, *options):
    out = hpctl("model", verb, model, "--jsonl", *options, stdin="".join(json.dumps(v) + "\n" for v in values).encode())
    return [json.loads(line) for line in out.decode().splitlines()]


def logits(folder, model, ids):
    path = os.path.join(folder, "logits.npy")
    hpctl("model", "logits", model, "--ids", ",".join(map(str, ids)), "--compute", "f32", "-o", path)
    return np.load(path)


def expected_of(folder):
    if not os.path.exists(os.path.join(folder, "expected.json")):
        skip(f"{os.path.basename(folder)} is not there (HP_GOLDEN points at models with known answers)")
    with open(os.path.join(folder, "expected.json")) as f:
        return json.load(f)


def divergence(reference, other):
    """Of each position, in nats."""
    def log_softmax(x):
        x = x.astype(np.float64)
        x = x - x.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))
    p, q = log_softmax(reference), log_softmax(other)
    return (np.exp(p) * (p - q)).sum(-1)


def converts_to_the_same_model(folder):
    expected = expected_of(folder)
    with tempfile.TemporaryDirectory() as at:
        out = os.path.join(at, "made.gguf")
        convert(os.path.join(folder, "hf"), out, "f32")
        texts = expected["tokenize"]
        for t, got in zip(texts, lines("tokenize", out, [t["text"] for t in texts])):
            assert got.get("ids") == t["ids"], (t["text"], got, t["ids"])
        for t, got in zip(texts, lines("detokenize", out, [t["ids_without_special"] for t in texts])):
            assert got.get("text") == t["decoded"], (t, got)
        chats = [c for c in expected.get("chat", []) if "error" not in c]
        for c, got in zip(chats, lines("render", out, [{k: c[k] for k in ("messages", "add_generation_prompt")} for c in chats])):
            assert (got.get("text"), got.get("ids")) == (c["text"], c["ids"]), (c, got)
        p = expected["prompts"][-1]
        wanted, got = np.load(os.path.join(folder, p["logits"])), logits(at, out, p["ids"])
        error = float(np.abs(got - wanted).max() / np.abs(wanted).max())
        assert error <= 1e-4, f"{error:.2e} of the largest"


for folder in sorted(glob.glob(os.path.join(GOLDEN, "*", "hf")) + glob.glob(os.path.join(MORE_GOLDEN, "*", "hf"))):
    folder = os.path.dirname(folder)
    known = subprocess.run([HPCTL, "model", "describe", os.path.join(folder, "hf")], capture_output=True).returncode == 0
    if known and "encoder" not in open(os.path.join(folder, "expected.json")).read(2000):
        def run(folder=folder):
            converts_to_the_same_model(folder)
        run.__name__ = f"{os.path.basename(folder)} converts to the same model"
        test(run)


@test
def quantised_files_lose_no_more_than_those_of_the_usual_makers():
    expected = expected_of(QUANTISED)
    prompts = expected["prompts"]
    exact = [np.load(os.path.join(QUANTISED, p["logits"])) for p in prompts]
    with tempfile.TemporaryDirectory() as at:
        for kind, names in expected["rounded_weights"].items():
            out = os.path.join(at, f"{kind}.gguf")
            made = convert(os.path.join(QUANTISED, "model-f32.gguf"), out, kind)
            theirs = os.path.join(QUANTISED, f"model-{kind}.gguf")
            described = json.loads(hpctl("model", "describe", theirs, "-o", "json"))["tensors"]
            assert made["tensors"] == {k: {"count": v["count"], "bytes": v["bytes"]} for k, v in described.items()}, (kind, made["tensors"], described)
            loss = [np.concatenate([divergence(e, g) for e, g in zip(exact, every)]).mean() for every in (
                [logits(at, out, p["ids"]) for p in prompts], [np.load(os.path.join(QUANTISED, n)) for n in names])]
            print(f"# {kind}: {loss[0]:.2e} nats, {loss[0] / loss[1]:.3f} of theirs")
            assert loss[0] <= 1.01 * loss[1], f"{kind}: {loss[0]:.3e} nats against {loss[1]:.3e}"


@test
def encoders_embed_alike_when_converted():
    folder = os.path.join(MORE_GOLDEN, "bert")
    expected = expected_of(folder)
    texts = [t["text"] for t in expected["tokenize"]]
    with tempfile.TemporaryDirectory() as at:
        out = os.path.join(at, "made.gguf")
        convert(os.path.join(folder, "hf"), out, "f32")
        assert lines("tokenize", out, texts) == lines("tokenize", os.path.join(folder, "hf"), texts)
        for p, got in zip(expected["prompts"], lines("embed", out, [p["text"] for p in expected["prompts"]], "--compute", "f32")):
            wanted = np.load(os.path.join(folder, p["embedding"]))
            assert np.abs(np.array(got["embedding"]) - wanted).max() <= 1e-4 * np.abs(wanted).max(), p["text"]


@test
def other_kinds_of_tokenizers_are_converted_or_refused():
    """Folders with a tokenizer of every kind of which the unit tests know what it does."""
    folder = os.path.join(GOLDEN, "llama2")
    expected_of(folder)
    cases = os.path.join(ROOT, "tests", "unit", "model", "tokenizer", "cases")
    with open(os.path.join(cases, "folders.json")) as f:
        made = [(x["name"], "tekken.json" if "tekken" in x else "tokenizer.model", json.dumps(x["tekken"]).encode() if "tekken" in x else base64.b64decode(x["file"]), x["cases"]) for x in json.load(f)["folders"]]
    with open(os.path.join(cases, "kinds.json")) as f:
        made += [(x["name"], "tokenizer.json", json.dumps(x["tokenizer"]).encode(), x["cases"]) for x in json.load(f)["kinds"]]
    done = []
    for name, file, data, texts in made:
        with tempfile.TemporaryDirectory() as at:
            hf, out = os.path.join(at, "hf"), os.path.join(at, "made.gguf")
            shutil.copytree(os.path.join(folder, "hf"), hf)
            subprocess.run(["chmod", "-R", "u+w", hf], check=True)
            for old in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"):
                if os.path.exists(os.path.join(hf, old)):
                    os.remove(os.path.join(hf, old))
            with open(os.path.join(hf, file), "wb") as f:
                f.write(data)
            run = subprocess.run([HPCTL, "model", "convert", hf, out, "--type", "f16"], capture_output=True)
            if run.returncode:
                assert b"otherwise" in run.stderr and not os.path.exists(out), (name, run.stderr)
                continue
            done.append(name)
            # GGUF's readers look for what SentencePiece calls user-defined in the text as it comes, and put a mark before one that stands there.
            texts = [t[0] for t in texts if not any(user in t[0] for user in ("<tool>", "    ", "\n\n", "▁the"))]
            got, wanted = lines("tokenize", out, texts), lines("tokenize", hf, texts)
            for text, g, w in zip(texts, got, wanted):
                assert g == w, (name, text, g, w)
    print("# converted: " + "; ".join(done))
    assert len(done) >= 7, done


@test
def a_converted_file_does_not_depend_on_threads():
    with tempfile.TemporaryDirectory() as at:
        files = []
        for threads in (1, 5):
            out = os.path.join(at, f"{threads}.gguf")
            convert(DEMO, out, "q4_k_m", "--threads", threads)
            with open(out, "rb") as f:
                files.append(f.read())
        assert files[0] == files[1]


@test
def the_output_names_what_fell_back_and_what_was_quantised_already():
    with tempfile.TemporaryDirectory() as at:
        out = os.path.join(at, "made.gguf")
        said = hpctl("model", "convert", DEMO, out, "--type", "q6_k").decode()
        made = convert(DEMO, out, "q6_k", "--overwrite")
        width = json.loads(hpctl("model", "describe", DEMO, "-o", "json"))["width"]
        assert made["requantised"] > 0 and "were quantised already" in said, made
        for x in made["exceptions"]:
            assert x["row_elements"] % 256 and f"{x['tensor']}: {x['written']} instead of {x['wanted']}" in said, (x, said)
        assert bool(made["exceptions"]) == bool(width % 256), (width, made)
        again = subprocess.run([HPCTL, "model", "convert", DEMO, out, "--type", "q6_k"], capture_output=True)
        assert again.returncode == 1 and b"is there already" in again.stderr and b"--overwrite" in again.stderr, again


@test
def an_interrupted_conversion_leaves_nothing():
    with tempfile.TemporaryDirectory() as at:
        out = os.path.join(at, "made.gguf")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            run = subprocess.Popen([HPCTL, "model", "convert", DEMO, out, "--type", "q2_k", "--threads", "1"], stderr=subprocess.PIPE)
            run.stderr.read(1)  # it has begun
            run.send_signal(number)
            said = run.communicate(timeout=60)[1]
            if run.returncode == 0:
                os.remove(out)  # it was quicker than we
                continue
            if number == signal.SIGKILL:  # whatever is left goes with the next conversion
                convert(DEMO, out, "q2_k")
                assert os.listdir(at) == ["made.gguf"], os.listdir(at)
            else:
                assert run.returncode == 130 and b"converting was stopped" in said and not os.listdir(at), (run.returncode, said, os.listdir(at))


main()
