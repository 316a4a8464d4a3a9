"""Writes a LLaMA of a given shape with random weights as a GGUF file, to measure speed with: what it says means nothing.

    make_random_model.py OUT.gguf [--type bf16|q8_0|f16|f32] [--blocks 22] [--width 2048] [--heads 32] [--kv-heads 4] [--mlp 5632]
                         [--vocabulary 32000] [--context 4096] [--seed 1]

The default shape has 1.1 billion parameters. Weights are streamed from one pool of random numbers, so memory stays small and the disk sets the
pace; the tokenizer is a valid SentencePiece vocabulary of that size over letters and their combinations. Needs numpy alone."""
import argparse
import itertools
import os
import string
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "models"))
from formats import BOOL, F32, I32, STRING, U32, bytes_of, encode, gguf_write

POOL = 1 << 22


class Pool:
    """Endless weights in a number format, from one pool that every tensor enters at another place."""

    def __init__(self, dtype, seed):
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.raw = encode(self.random.standard_normal(POOL, dtype=np.float32) * np.float32(0.02), dtype)
        self.unit = 34 if dtype == "Q8_0" else bytes_of((1,), dtype)

    def stream(self, total):
        at = int(self.random.integers(len(self.raw) // self.unit)) * self.unit
        while total:
            chunk = memoryview(self.raw)[at:at + total]
            yield chunk
            total -= len(chunk)
            at = 0


def vocabulary(size):
    """(tokens, scores, kinds): unknown, begin, end, bytes, then pieces; every piece is two shorter ones joined, down to letters."""
    base = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    singles = ["▁", *string.printable[:94]]
    pairs = ["".join(p) for p in itertools.product(string.ascii_lowercase, repeat=2)]
    longer = (a + b for n in (1, 2) for a in ["▁", *pairs] for b in map("".join, itertools.product(string.ascii_lowercase, repeat=n)))
    pieces = itertools.chain(singles, pairs, longer, (f"▁{i:x}" for i in itertools.count(1 << 24)))
    if size < len(base) + len(singles):
        sys.exit(f"--vocabulary {size}: at least {len(base) + len(singles)}")
    tokens = base + list(itertools.islice(pieces, size - len(base)))
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - len(base))]
    return tokens, [0.0] * len(base) + [-float(i) for i in range(len(tokens) - len(base))], kinds


def keys_of(a):
    tokens, scores, kinds = vocabulary(a.vocabulary)
    head_dim = a.width // a.heads
    return [
        ("general.architecture", STRING, "llama"), ("general.name", STRING, "random"), ("llama.block_count", U32, a.blocks),
        ("llama.context_length", U32, a.context), ("llama.embedding_length", U32, a.width), ("llama.feed_forward_length", U32, a.mlp),
        ("llama.attention.head_count", U32, a.heads), ("llama.attention.head_count_kv", U32, a.kv_heads),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), ("llama.rope.freq_base", F32, 10000.0),
        ("llama.rope.dimension_count", U32, head_dim), ("llama.vocab_size", U32, a.vocabulary),
        ("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.pre", STRING, "default"), ("tokenizer.ggml.tokens", STRING, tokens),
        ("tokenizer.ggml.scores", F32, scores), ("tokenizer.ggml.token_type", I32, kinds), ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 2), ("tokenizer.ggml.unknown_token_id", U32, 0), ("tokenizer.ggml.add_bos_token", BOOL, True),
        ("tokenizer.chat_template", STRING, "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"),
    ]


def tensors_of(a):
    dtype, kv = a.type.upper(), a.kv_heads * (a.width // a.heads)
    pool, ones = Pool(dtype, a.seed), np.ones(a.width, np.float32).tobytes()

    def matrix(name, rows, columns):
        return name + ".weight", (rows, columns), dtype, lambda: pool.stream(bytes_of((rows, columns), dtype))

    def norm(name):
        return name + ".weight", (a.width,), "F32", lambda: [ones]

    blocks = [[norm(f"blk.{b}.attn_norm"), matrix(f"blk.{b}.attn_q", a.width, a.width), matrix(f"blk.{b}.attn_k", kv, a.width),
               matrix(f"blk.{b}.attn_v", kv, a.width), matrix(f"blk.{b}.attn_output", a.width, a.width), norm(f"blk.{b}.ffn_norm"),
               matrix(f"blk.{b}.ffn_gate", a.mlp, a.width), matrix(f"blk.{b}.ffn_up", a.mlp, a.width), matrix(f"blk.{b}.ffn_down", a.width, a.mlp)]
              for b in range(a.blocks)]
    return [matrix("token_embd", a.vocabulary, a.width), *itertools.chain(*blocks), norm("output_norm"), matrix("output", a.vocabulary, a.width)]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--type", choices=["f32", "f16", "bf16", "q8_0"], default="bf16")
    for name, value in {"blocks": 22, "width": 2048, "heads": 32, "kv-heads": 4, "mlp": 5632, "vocabulary": 32000, "context": 4096, "seed": 1}.items():
        p.add_argument("--" + name, type=int, default=value, metavar=str(value))
    a = p.parse_args()
    if a.width % a.heads or a.heads % a.kv_heads or a.width // a.heads % 2:
        sys.exit("--width must be a multiple of --heads, with an even head size, and --heads a multiple of --kv-heads")
    if a.type == "q8_0" and (a.width % 32 or a.mlp % 32):
        sys.exit("q8_0 needs --width and --mlp in multiples of 32")
    partial = a.out + ".part"
    gguf_write(partial, keys_of(a), tensors_of(a))
    os.replace(partial, a.out)
    print(f"{a.out}: {os.path.getsize(a.out)} bytes")


main()
