"""Writes a LLaMA of a given shape with random weights as a GGUF file, to measure speed with: what it says means nothing.

    make_random_model.py OUT.gguf [--type bf16|q8_0|q4_k_m|f16|f32] [--blocks 22] [--width 2048] [--heads 32] [--kv-heads 4] [--mlp 5632]
                         [--experts 0 --experts-used 2] [--vocabulary 32000] [--context 4096] [--seed 1]

The default shape has 1.1 billion parameters. q4_k_m is Q4_K with the head and half of the values' and down matrices in Q6_K; with --experts it is a mixture. Weights are streamed from one pool of random numbers, so memory stays small and the disk sets the
pace; the tokenizer is a valid SentencePiece vocabulary of that size over letters and their combinations. Needs numpy alone."""
import argparse
import itertools
import os
import string
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "models"))
from formats import BLOCKS, BOOL, F32, I32, STRING, U32, bytes_of, encode, gguf_write

POOL = 1 << 22


def superblocks(dtype, random):
    """Blocks of 256 whose bits are drawn, with scales that make them about as large as other weights."""
    out = random.integers(0, 256, (POOL // 256, BLOCKS[dtype][1]), np.uint8)
    halves = {"Q4_K": [(0, 6e-5), (2, 4.5e-4)], "Q6_K": [(208, 1.5e-5)]}[dtype]  # w = d * scale * q - least * scale2, and d * scale * q
    for at, value in halves:
        out[:, at:at + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    return out.tobytes()


class Pool:
    """Endless weights in a number format, from one pool that every tensor enters at another place."""

    def __init__(self, dtype, seed):
        self.random = np.random.Generator(np.random.PCG64(seed))
        if dtype in ("Q4_K", "Q6_K"):
            self.raw = superblocks(dtype, self.random)
        else:
            self.raw = encode(self.random.standard_normal(POOL, dtype=np.float32) * np.float32(0.02), dtype)
        self.unit = BLOCKS[dtype][1] if dtype in BLOCKS else bytes_of((1,), dtype)

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
        *([("llama.expert_count", U32, a.experts), ("llama.expert_used_count", U32, a.experts_used)] if a.experts else []),
        ("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.pre", STRING, "default"), ("tokenizer.ggml.tokens", STRING, tokens),
        ("tokenizer.ggml.scores", F32, scores), ("tokenizer.ggml.token_type", I32, kinds), ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 2), ("tokenizer.ggml.unknown_token_id", U32, 0), ("tokenizer.ggml.add_bos_token", BOOL, True),
        ("tokenizer.chat_template", STRING, "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"),
    ]


def tensors_of(a):
    kv, mixed = a.kv_heads * (a.width // a.heads), a.type == "q4_k_m"
    usual, fine = ("Q4_K", "Q6_K") if mixed else (a.type.upper(), a.type.upper())
    pools, ones = {dtype: Pool(dtype, a.seed) for dtype in {usual, fine, "F32"}}, np.ones(a.width, np.float32).tobytes()

    def matrix(name, *shape, dtype=usual):
        return name + ".weight", shape, dtype, lambda: pools[dtype].stream(bytes_of(shape, dtype))

    def norm(name):
        return name + ".weight", (a.width,), "F32", lambda: [ones]

    def feed_forward(b, down):
        if not a.experts:
            return [matrix(f"blk.{b}.ffn_gate", a.mlp, a.width), matrix(f"blk.{b}.ffn_up", a.mlp, a.width), matrix(f"blk.{b}.ffn_down", a.width, a.mlp, dtype=down)]
        return [matrix(f"blk.{b}.ffn_gate_inp", a.experts, a.width, dtype="F32"), matrix(f"blk.{b}.ffn_gate_exps", a.experts, a.mlp, a.width),
                matrix(f"blk.{b}.ffn_up_exps", a.experts, a.mlp, a.width), matrix(f"blk.{b}.ffn_down_exps", a.experts, a.width, a.mlp, dtype=down)]

    def block(b):
        better = fine if b % 2 else usual
        return [norm(f"blk.{b}.attn_norm"), matrix(f"blk.{b}.attn_q", a.width, a.width), matrix(f"blk.{b}.attn_k", kv, a.width),
                matrix(f"blk.{b}.attn_v", kv, a.width, dtype=better), matrix(f"blk.{b}.attn_output", a.width, a.width), norm(f"blk.{b}.ffn_norm"), *feed_forward(b, better)]

    return [matrix("token_embd", a.vocabulary, a.width), *itertools.chain(*map(block, range(a.blocks))), norm("output_norm"),
            matrix("output", a.vocabulary, a.width, dtype=fine)]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--type", choices=["f32", "f16", "bf16", "q8_0", "q4_k_m"], default="bf16")
    for name, value in {"blocks": 22, "width": 2048, "heads": 32, "kv-heads": 4, "mlp": 5632, "vocabulary": 32000, "context": 4096, "experts": 0,
                        "experts-used": 2, "seed": 1}.items():
        p.add_argument("--" + name, type=int, default=value, metavar=str(value))
    a = p.parse_args()
    if a.width % a.heads or a.heads % a.kv_heads or a.width // a.heads % 2:
        sys.exit("--width must be a multiple of --heads, with an even head size, and --heads a multiple of --kv-heads")
    unit = {"q8_0": 32, "q4_k_m": 256}.get(a.type, 1)
    if a.width % unit or a.mlp % unit:
        sys.exit(f"{a.type} needs --width and --mlp in multiples of {unit}")
    partial = a.out + ".part"
    gguf_write(partial, keys_of(a), tensors_of(a))
    os.replace(partial, a.out)
    print(f"{a.out}: {os.path.getsize(a.out)} bytes")


main()
