"""What tests of embeddings have in common: an encoder whose rows are known, and a decoder made one of embeddings."""
import json
import os
import shutil
import struct

from cluster import ROOT
from tap import skip

SHARED = os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared"))
FOLDER = os.path.join(os.environ.get("HP_GOLDEN_FAMILIES", os.path.join(SHARED, "golden-families")), "bert")


def golden():
    if not os.path.exists(os.path.join(FOLDER, "expected.json")):
        skip("bert is not there (HP_GOLDEN_FAMILIES points at models with known answers)")
    with open(os.path.join(FOLDER, "expected.json")) as f:
        prompts = json.load(f)["prompts"]
    rows = []
    for p in prompts:
        with open(os.path.join(FOLDER, p["embedding"]), "rb") as f:
            data = f.read()
        n = 64 * 4
        rows.append(struct.unpack("<64f", data[len(data) - n:]))
    return prompts, rows


def close(got, wanted, bound=1e-4):
    error = max(abs(g - w) for g, w in zip(got, wanted)) / max(map(abs, wanted))
    assert len(got) == len(wanted) and error <= bound, f"{error:.2e} of the largest, {bound:.0e} is allowed"


def pooled_decoder(folder):
    """A text model's folder as one of embeddings: tensors without "model.", and how rows are pooled."""
    source = os.path.join(os.environ.get("HP_GOLDEN", os.path.join(SHARED, "golden")), "qwen3", "hf")
    if not os.path.exists(source):
        skip("qwen3 is not there (HP_GOLDEN points at models with known answers)")
    os.makedirs(os.path.join(folder, "1_Pooling"))
    for name in os.listdir(source):
        if name.endswith(".json"):
            shutil.copyfile(os.path.join(source, name), os.path.join(folder, name))
    with open(os.path.join(source, "model.safetensors"), "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    text = json.dumps({k.removeprefix("model."): v for k, v in header.items()}).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(folder, "1_Pooling", "config.json"), "w") as f:
        json.dump({"pooling_mode_lasttoken": True}, f)
    with open(os.path.join(folder, "modules.json"), "w") as f:
        json.dump([{"type": "sentence_transformers.models." + name} for name in ("Transformer", "Pooling", "Normalize")], f)
    return folder
