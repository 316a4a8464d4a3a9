"""What a file says of the computation is computed, or refused: settings that a file lacks, or has of another family."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from tap import main, skip, test

HPCTL = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "hpctl")
FAMILIES = os.environ.get("HP_GOLDEN_FAMILIES", os.path.join(os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared")), "golden-families"))
IDS = ",".join(str(i % 300 + 5) for i in range(40))


def source(family, name):
    path = os.path.join(FAMILIES, family, name)
    if not os.path.exists(path):
        skip(f"{family} is not there (HP_GOLDEN_FAMILIES points at models with known answers)")
    return path


def logits(model, folder):
    out = os.path.join(folder, "logits.npy")
    run = subprocess.run([HPCTL, "model", "logits", model, "--ids", IDS, "--compute", "f32", "-o", out], capture_output=True)
    assert run.returncode == 0, run.stderr
    return np.load(out)


def spoiled(path, out, *changes):
    """A copy of a file with names replaced by others of the same length."""
    with open(path, "rb") as f:
        raw = f.read()
    for old, new in changes:
        assert len(old) == len(new) and old in raw, (old, new)
        raw = raw.replace(old, new)
    with open(out, "wb") as f:
        f.write(raw)
    return out


def refusal(model):
    run = subprocess.run([HPCTL, "model", "describe", model, "-o", "json"], capture_output=True)
    assert run.returncode == 1, (run.returncode, run.stderr)
    error = json.loads(run.stdout)["error"]
    assert model in error["message"] and error["hint"], error
    return error["message"]


def config_copy(family, folder, name, **changes):
    """A folder's copy whose config.json says otherwise; `missing`: without that key."""
    out = os.path.join(folder, name)
    shutil.copytree(source(family, "hf"), out)
    path = os.path.join(out, "config.json")
    with open(path) as f:
        config = json.load(f)
    for key, value in changes.items():
        config.pop(key, None) if value == "missing" else config.update({key: value})
    os.remove(path)
    with open(path, "w") as f:
        json.dump(config, f)
    return out


@test
def factors_of_long_sequences_and_tables_that_are_missing_are_named():
    phi3, bert = source("phi3", "model-f32.gguf"), source("bert", "model-f32.gguf")
    with tempfile.TemporaryDirectory() as folder:
        def other(path, *changes):
            return refusal(spoiled(path, os.path.join(folder, "spoiled.gguf"), *changes))
        long, short = (b"rope_factors_long", b"rope_factors_l0ng"), (b"rope_factors_short", b"rope_factors_sh0rt")
        assert "tensor rope_factors_long.weight is missing" in other(phi3, long)
        assert "tensor rope_factors_short.weight is missing" in other(phi3, short)
        assert "tensor rope_factors_long.weight is missing" in other(phi3, long, short)
        assert "tensor token_types.weight is missing" in other(bert, (b"token_types.weight", b"token_typos.weight"))


@test
def what_another_family_computes_with_is_refused_by_key():
    granite = source("granite", "model-f32.gguf")
    with tempfile.TemporaryDirectory() as folder, open(granite, "rb") as f:
        raw = f.read()
        at = raw.index(b"general.architecture") + 24
        raw = raw[:at] + b"\x05" + bytes(7) + b"llama" + raw[at + 15:]
        parts = raw.split(b"granite.")
        for i, part in enumerate(parts[:-1]):
            n = int.from_bytes(part[-8:], "little") - 2
            parts[i] = part[:-8] + n.to_bytes(8, "little")
        path = os.path.join(folder, "granite-as-llama.gguf")
        head = b"llama.".join(parts)
        names = len(raw) - len(head)
        assert names > 0 and names % 2 == 0
        with open(path, "wb") as out:  # the data begins at a multiple of 32 behind a header that became shorter: told is the key all the same
            out.write(head + bytes(names))
        message = refusal(path)
        assert "key llama.attention.scale" in message and "a model of family llama computes with" in message, message


@test
def caps_are_those_of_the_file_its_family_or_none():
    with tempfile.TemporaryDirectory() as folder:
        keys = ("attn_logit_softcapping", "final_logit_softcapping")
        missing = logits(config_copy("gemma2", folder, "missing", **{k: "missing" for k in keys}), folder)
        usual = logits(config_copy("gemma2", folder, "usual", **dict(zip(keys, (50.0, 30.0)))), folder)
        none = config_copy("gemma2", folder, "none", **{k: None for k in keys})
        assert np.array_equal(missing, usual) and not np.array_equal(missing, logits(none, folder))
        gguf = spoiled(source("gemma2", "model-f32.gguf"), os.path.join(folder, "old.gguf"), (b"attn_logit_softcapping", b"attn_logit_s0ftcapping"),
                       (b"final_logit_softcapping", b"final_logit_s0ftcapping"))
        assert np.abs(logits(gguf, folder) - usual).max() <= 1e-4 * np.abs(usual).max()
        converted = os.path.join(folder, "none.gguf")
        assert subprocess.run([HPCTL, "model", "convert", none, converted, "--type", "f32"], capture_output=True).returncode == 0
        wanted = logits(none, folder)
        assert np.abs(logits(converted, folder) - wanted).max() <= 1e-4 * np.abs(wanted).max()
        bare, capped = (logits(config_copy("gemma3", folder, f"g{i}", final_logit_softcapping=cap), folder) for i, cap in enumerate((None, 2.0)))
        assert np.abs(2 * np.tanh(bare / 2) - capped).max() <= 1e-5


@test
def a_value_that_is_no_number_is_refused_with_file_tensor_and_row():
    path = source("gpt_oss", "model-bf16.gguf")
    with open(path, "rb") as f:
        raw = f.read()
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "spoiled.gguf")
        shutil.copy(path, out)
        with open(out, "r+b") as f:  # a value of F32 or BF16 at the last tensor's end, behind which nothing but zeros may lie
            f.seek((len(raw.rstrip(b"\0")) - 1) // 4 * 4)
            f.write(b"\0\0\xc0\x7f")
        for options in ([], ["--compute", "f32"], ["--kernels", "plain"]):
            run = subprocess.run([HPCTL, "model", "logits", out, "--ids", "1", "-o", os.path.join(folder, "l.npy"), *options], capture_output=True, text=True)
            assert run.returncode == 1 and out in run.stderr and ": tensor " in run.stderr and "is no finite number" in run.stderr, run.stderr


def rotated_logits(scaling, ids, folder, name):
    """Of LLaMA 2's folder whose positions are scaled so, by its file as it is and as it is converted."""
    out = os.path.join(folder, name)
    shutil.copytree(os.path.join(os.path.dirname(FAMILIES), "golden", "llama2", "hf"), out)
    path = os.path.join(out, "config.json")
    with open(path) as f:
        config = json.load(f)
    os.remove(path)
    with open(path, "w") as f:
        json.dump({**config, "max_position_embeddings": 64, **scaling}, f)
    converted, results = out + ".gguf", []
    assert subprocess.run([HPCTL, "model", "convert", out, converted, "--type", "f32"], capture_output=True).returncode == 0
    for model in (out, converted):
        run = subprocess.run([HPCTL, "model", "logits", model, "--ids", ",".join(map(str, ids)), "--compute", "f32", "--slice", "7", "-o", out + ".npy"], capture_output=True)
        assert run.returncode == 0, run.stderr
        results.append(np.load(out + ".npy"))
    assert np.abs(results[0] - results[1]).max() <= 1e-4 * np.abs(results[0]).max()
    return results[0]


@test
def dynamic_scaling_is_none_within_the_context_and_a_larger_base_beyond():
    if not os.path.exists(os.path.join(os.path.dirname(FAMILIES), "golden", "llama2", "hf")):
        skip("llama2 is not there (HP_GOLDEN_FAMILIES points at models with known answers, beside golden/)")
    dynamic, ids = {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, [5 + i % 200 for i in range(100)]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(os.path.dirname(FAMILIES), "golden", "llama2", "hf", "config.json")) as f:
            config = json.load(f)
        dims, base = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"], config.get("rope_theta", 10000.0)
        larger = base * (2 * 2 - 1) ** (dims / (dims - 2))
        short = [rotated_logits(how, ids[:60], folder, f"short{i}") for i, how in enumerate((dynamic, {}))]
        assert np.array_equal(*short)
        long = [rotated_logits(how, ids, folder, f"long{i}") for i, how in enumerate((dynamic, {"rope_theta": larger, "max_position_embeddings": 128}))]
        assert np.abs(long[0] - long[1]).max() <= 1e-4 * np.abs(long[1]).max()


main()
