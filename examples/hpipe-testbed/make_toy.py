"""Writes a toy model with as many layers as a profile has, to stand in for the profile's model on a paced cluster.

    make_toy.py [PROFILE.json] [OUT.gguf]

Layers are matched by index: an embedding, an attention and an MLP half for every block, a head. The toy is so small that computing it takes no time to
speak of; how long things take comes from the profile. What it says means nothing. Needs numpy."""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MAKER = os.path.join(HERE, "..", "..", "bench", "make_random_model.py")


def main():
    profile = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "llama-7b.profile.json")
    out = sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, "toy.gguf")
    with open(profile) as f:
        layers = len(json.load(f)["layers"])
    if layers < 4 or layers % 2:
        sys.exit(f"{profile}: {layers} layers are no embedding, halves of blocks and a head")
    shape = {"blocks": (layers - 2) // 2, "width": 8, "heads": 1, "kv-heads": 1, "mlp": 8, "vocabulary": 384, "context": 32768}
    options = [str(word) for name, value in shape.items() for word in ("--" + name, value)]
    subprocess.run([sys.executable, MAKER, out, "--type", "f32", *options], check=True)


if __name__ == "__main__":
    main()
