"""Writes the seeds of the targets that read model files and of the data channel's, and messages of gRPC: `make_seeds.py [CORPUS]`. Each is a valid file of less than 4 kB."""
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))
import formats
from formats import BOOL, F32, I32, STRING, U32, encode, gguf_write, onnx_bytes, safetensors_write

WIDTH, HEADS, MLP, VOCABULARY = 8, 2, 8, 8


def shapes():
    w, m = WIDTH, MLP
    inner = {"attn_norm": (w,), "attn_q": (w, w), "attn_k": (w // 2, w), "attn_v": (w // 2, w), "attn_output": (w, w), "ffn_norm": (w,),
             "ffn_gate": (m, w), "ffn_up": (m, w), "ffn_down": (w, m)}
    return {"token_embd": (VOCABULARY, w), **{f"blk.0.{n}": s for n, s in inner.items()}, "output_norm": (w,)}


def tokenizer_keys(kind):
    if kind == "spm":
        tokens = ["<unk>", "<s>", "</s>", "<0x61>", "▁", "a", "b", "ab"]
        return [("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.tokens", STRING, tokens),
                ("tokenizer.ggml.scores", F32, [0.0] * 7 + [-1.0]), ("tokenizer.ggml.token_type", I32, [2, 3, 3, 6, 1, 1, 1, 1]),
                ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2), ("tokenizer.ggml.add_bos_token", BOOL, True)]
    return [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "llama-bpe"),
            ("tokenizer.ggml.tokens", STRING, ["a", "b", "ab", "Ġ", "Ġa", "<s>", "</s>", "c"]), ("tokenizer.ggml.merges", STRING, ["a b", "Ġ a"]),
            ("tokenizer.ggml.token_type", I32, [1, 1, 1, 1, 1, 3, 3, 1]), ("tokenizer.ggml.eos_token_id", U32, 6)]


def gguf_seed(path, kind, factors):
    keys = [("general.architecture", STRING, "llama"), ("llama.block_count", U32, 1), ("llama.context_length", U32, 64),
            ("llama.embedding_length", U32, WIDTH), ("llama.feed_forward_length", U32, MLP), ("llama.attention.head_count", U32, HEADS),
            ("llama.attention.head_count_kv", U32, HEADS // 2), ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), *tokenizer_keys(kind)]
    tensors = []
    for name, shape in shapes().items():
        dtype = "F32" if len(shape) == 1 else "F16"
        raw = encode(np.zeros(shape, np.float32), dtype)
        tensors.append((name + ".weight", shape, dtype, lambda raw=raw: [raw]))
    if factors:
        raw = encode(np.ones(WIDTH // HEADS // 2, np.float32), "F32")
        tensors.append(("rope_freqs.weight", (WIDTH // HEADS // 2,), "F32", lambda: [raw]))
    gguf_write(path, keys, tensors)


FAMILIES = {
    "gpt2": ({"attn_norm": (8,), "attn_qkv": (24, 8), "attn_output": (8, 8), "ffn_norm": (8,), "ffn_up": (8, 8), "ffn_down": (8, 8)},
             ("attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down"), {"position_embd": (16, 8)}, "layer_norm_epsilon", 8),
    "qwen2": ({"attn_norm": (32,), "attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32), "ffn_norm": (32,), "ffn_gate": (32, 32),
               "ffn_up": (32, 32), "ffn_down": (32, 32)}, ("attn_q", "attn_k", "attn_v"), {}, "layer_norm_rms_epsilon", 32),
}
BLOCKS = {"Q4_0": (2, 32, 18), "Q6_K": (14, 256, 210)}  # GGUF's number, elements and bytes of a block


def family_seed(path, family, dtype):
    """A model of one block, all zeros; matrices whose rows are whole blocks in `dtype`, the others in F16."""
    inner, biased, beside, epsilon, width = FAMILIES[family]
    keys = [("general.architecture", STRING, family), (f"{family}.block_count", U32, 1), (f"{family}.context_length", U32, 16), (f"{family}.embedding_length", U32, width),
            (f"{family}.feed_forward_length", U32, inner["ffn_up"][0]), (f"{family}.attention.head_count", U32, 2),
            (f"{family}.attention.head_count_kv", U32, 2 if family == "gpt2" else 1), (f"{family}.attention.{epsilon}", F32, 1e-5), *tokenizer_keys("bpe")]
    shapes = {"token_embd.weight": (VOCABULARY, width), **{n + ".weight": s for n, s in beside.items()}, **{f"blk.0.{n}.weight": s for n, s in inner.items()},
              **{f"blk.0.{n}.bias": inner[n][:1] for n in biased}, "output_norm.weight": (width,), **({"output_norm.bias": (width,)} if family == "gpt2" else {})}
    tensors = []
    for name, shape in shapes.items():
        kind = "F32" if len(shape) == 1 else dtype if dtype in BLOCKS and shape[1] % BLOCKS[dtype][1] == 0 else "F16"
        raw = bytes(shape[0] * shape[1] // BLOCKS[kind][1] * BLOCKS[kind][2]) if kind in BLOCKS else encode(np.zeros(shape, np.float32), kind)
        tensors.append((name, shape, kind, lambda raw=raw: [raw]))
    gguf_write(path, keys, tensors)


def blocks_known():
    """The writer's tables know the block formats, whose bytes are made here."""
    plain = formats.bytes_of
    formats.GGUF_TYPES.update({name: row[0] for name, row in BLOCKS.items()})
    formats.bytes_of = lambda shape, dtype: int(np.prod(shape)) // BLOCKS[dtype][1] * BLOCKS[dtype][2] if dtype in BLOCKS else plain(shape, dtype)


CONFIG = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 16, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "vocab_size": 300, "hidden_act": "silu"}
CONFIGS = {
    "older": {**CONFIG, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                                  "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    "newer": {**CONFIG, "model_type": "mistral", "sliding_window": None, "layer_types": ["full_attention"],
              "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}},
    "qwen2": {**CONFIG, "model_type": "qwen2", "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 1, "tie_word_embeddings": True},
    "gpt2": {"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 4, "n_inner": None, "n_positions": 128, "n_ctx": 128, "vocab_size": 300,
             "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"},
}


def handshake_seeds(folder):
    """The target lays its input over good messages of 116, 52 and 32 bytes (first byte 1) or reads it alone (0)."""
    for name, body in {"good": bytes(200), "second": bytes(116) + b"\xff" + bytes(51), "third": bytes(168) + b"\x01"}.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(b"\x01" + body)
    with open(os.path.join(folder, "alone"), "wb") as f:
        f.write(b"\x00\x01\x01\x03" + bytes(113))


def data_tcp_seeds(folder):
    """Conversations of records as the target reads them: a small frame, a large one that is announced, granted and sent, grants for what the target posts."""
    def record(kind, number, text, length=None):
        return bytes([kind, number]) + (len(text) if length is None else length).to_bytes(2, "little") + text

    def header(payload_bytes, own_length):
        return bytes([3, 1, 0, 3]) + payload_bytes.to_bytes(4, "little") + bytes([own_length]) + bytes(7)

    small = record(0x82, 0, header(0, 1) + b"payload")
    large = record(0x83, 1, header(66000, 0)) + record(0x45, 1, b"p", 65535) + record(0x45, 1, b"p", 465)
    grants = record(4, 1, b"\x01") + record(4, 2, b"\x00")
    ends = record(6, 0, b"") + record(7, 0, b"\x02")
    seeds = {"all": b"\x00" + small + large + grants + ends, "narrow": b"\x0c" + large + small + small + ends, "closing": b"\x00" + grants + record(7, 0, b"\x01"),
             "raw": b"\x01" + bytes([1, 0, 0, 6]) + bytes(21), "ungreeted": b"\x02" + small}
    for name, seed in seeds.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(seed)


def data_ucx_seeds(folder):
    """The first byte chooses: 0 a stranger, 1 a proven peer's wish, 2 the answer to an introduction (3, a frame's payload size and header, has a seed of its own,
    since its hash is not Python's)."""
    addresses = bytes([2]) + (bytes(10) + b"\xff\xff\x7f\x00\x00\x01" + (7071).to_bytes(2, "little")) * 2 + bytes(18 * 6)
    seeds = {"stranger": b"\x00\x78\x56\x34\x12\xbe\xba\xfe\xca\x0a\x40" + bytes(67), "give": b"\x01\x01ucx", "introduce": b"\x01\x02" + addresses,
             "answer": b"\x02" + addresses}
    for name, seed in seeds.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(seed)


def onnx_seeds(folder):
    ones = np.ones
    picture, words = [("x", 1, ("n", 3, "h", "w"))], [("x", 1, ("n", 4, 8))]
    seeds = {
        "convolutions": onnx_bytes(
            [("Conv", ["x", "w", "b"], ["a"], {"pads": [1, 1, 1, 1], "strides": [1, 1], "kernel_shape": [3, 3]}), ("Relu", ["a"], ["r"], {}),
             ("BatchNormalization", ["r", "b", "b", "b", "b"], ["n"], {"epsilon": 1e-5}), ("MaxPool", ["n"], ["p"], {"kernel_shape": [2, 2], "ceil_mode": 1}),
             ("AveragePool", ["p"], ["q"], {"kernel_shape": [1, 1], "auto_pad": "SAME_UPPER"}),
             ("ConvTranspose", ["q", "u"], ["t"], {"strides": [2, 2], "group": 1}), ("Resize", ["t", "", "s"], ["z"], {"mode": "linear"}),
             ("GlobalAveragePool", ["z"], ["g"], {}), ("Flatten", ["g"], ["y"], {"axis": 1})],
            picture, ["y"], [("w", ones((4, 3, 3, 3), np.float32)), ("b", ones(4, np.float32)), ("u", ones((4, 2, 2, 2), np.float32)),
                             ("s", np.array([1, 1, 1.5, 0.5], np.float32))]),
        "attention": onnx_bytes(
            [("MatMul", ["x", "w"], ["q"], {}), ("Transpose", ["q"], ["k"], {"perm": [0, 2, 1]}), ("MatMul", ["q", "k"], ["s"], {}),
             ("Softmax", ["s"], ["p"], {"axis": -1}), ("Einsum", ["p", "q"], ["v"], {"equation": "bij,bjd->bid"}),
             ("LayerNormalization", ["v", "g", "g"], ["l"], {"axis": -1}), ("Gelu", ["l"], ["h"], {}), ("Gather", ["h", "i"], ["y"], {"axis": 1}),
             ("TopK", ["y", "i"], ["t", "j"], {"axis": -1}), ("GatherElements", ["y", "j"], ["e"], {"axis": 2})],
            words, ["t", "e"], [("w", ones((8, 8), np.float32)), ("g", ones(8, np.float32)), ("i", np.array([1], np.int64))]),
        "shapes": onnx_bytes(
            [("Shape", ["x"], ["s"], {}), ("Slice", ["s", "o", "t"], ["c"], {}), ("Concat", ["c", "m"], ["d"], {"axis": 0}), ("Reshape", ["x", "d"], ["r"], {}),
             ("Split", ["r"], ["a", "b"], {"axis": 1, "num_outputs": 2}), ("Pad", ["a", "p"], ["e"], {"mode": "reflect"}), ("Expand", ["o", "t"], ["f"], {}),
             ("Tile", ["b", "t2"], ["g"], {}), ("Unsqueeze", ["e", "o"], ["u"], {}), ("Squeeze", ["u", "o"], ["v"], {}), ("ReduceMean", ["v", "o"], ["y"], {"keepdims": 0}),
             ("CumSum", ["g", "z"], ["h"], {}), ("ConstantOfShape", ["c"], ["k"], {"value": ones(1, np.int64)}), ("Range", ["z", "z2", "z3"], ["l"], {}),
             ("ScatterND", ["l", "n", "q"], ["w"], {}), ("Where", ["bool", "z", "z2"], ["where"], {})],
            words, ["y", "h", "f", "k", "w", "where"],
            [("o", np.array([0], np.int64)), ("t", np.array([1], np.int64)), ("m", np.array([-1], np.int64)), ("p", np.array([0, 1, 0, 2], np.int64)),
             ("t2", np.array([1, 2], np.int64)), ("z", np.array(0, np.int64)), ("z2", np.array(9, np.int64)), ("z3", np.array(2, np.int64)),
             ("n", np.array([[1], [0]], np.int64)), ("q", np.array([5, 6], np.int64)), ("bool", np.array([True, False]))], 18),
    }
    for name, data in seeds.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


def protobuf(*fields):
    """(number, int or bytes) after (number, int or bytes); numbers are below 128."""
    return b"".join(bytes([n << 3, v]) if isinstance(v, int) else bytes([n << 3 | 2, len(v)]) + v for n, v in fields)


def infer_message_seeds(folder):
    """ModelInferRequests for the models of tests/fuzz/infer_message.c: raw contents, and numbers of their own with parameters."""
    def tensor(name, kind, shape, *more):
        return 5, protobuf((1, name), (2, kind), (3, bytes(shape)), *more)

    def parameter(field, name, kind, value):
        return field, protobuf((1, name), (2, protobuf((kind, value))))

    x, ids = np.ones((2, 2), np.float32).tobytes(), np.arange(2, dtype=np.int64).tobytes()
    seeds = {"raw": [(1, b"m"), (2, b"1"), (3, b"q"), tensor(b"x", b"FP32", [2, 2]), tensor(b"ids", b"INT64", [2]), (6, protobuf((1, b"x"))), (7, x), (7, ids)],
             "numbers": [(1, b"m"), parameter(4, b"timeout", 2, 9), parameter(4, b"timings", 1, 1), tensor(b"x", b"FP32", [2, 2], (5, protobuf((6, x)))),
                         tensor(b"ids", b"INT64", [2], (5, protobuf((3, 7), (3, 8)))), tensor(b"any", b"UINT8", [3], parameter(4, b"a", 3, b"b"), (5, protobuf((4, bytes([1, 2, 3])))))]}
    for name, fields in seeds.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(protobuf(*fields))


def main():
    corpus = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "corpus")
    folders = {name: os.path.join(corpus, name) for name in ("gguf", "safetensors", "hub_config", "handshake", "data_tcp", "data_ucx", "onnx", "npz", "infer_message")}
    for folder in folders.values():
        os.makedirs(folder, exist_ok=True)
    gguf_seed(os.path.join(folders["gguf"], "spm"), "spm", False)
    gguf_seed(os.path.join(folders["gguf"], "bpe"), "bpe", True)
    blocks_known()
    family_seed(os.path.join(folders["gguf"], "gpt2"), "gpt2", "F16")
    family_seed(os.path.join(folders["gguf"], "qwen2"), "qwen2", "Q4_0")
    tensors = [("a.weight", np.ones((2, 3), np.float32), "F32"), ("b.weight", np.ones(4, np.float32), "BF16"), ("c.weight", np.ones((1, 2, 2), np.float32), "F16")]
    safetensors_write(os.path.join(folders["safetensors"], "three"), tensors)
    safetensors_write(os.path.join(folders["safetensors"], "none"), [])
    eight = np.arange(20, dtype=np.uint8).reshape(4, 5)
    safetensors_write(os.path.join(folders["safetensors"], "eight-bits"), [
        ("a.weight", eight, "F8_E4M3"), ("a.weight_scale_inv", np.ones((2, 2), np.float32), "F32"), ("b.weight", eight[:2], "F8_E5M2"),
        ("b.weight_scale", np.ones((2, 1), np.float32), "BF16"), ("c.weight", eight[:1], "F8_E4M3"), ("c.weight_scale", np.ones((), np.float32), "F32")])
    safetensors_write(os.path.join(folders["safetensors"], "mxfp4-apart"), [
        ("e.down_proj_blocks", np.ones((2, 3, 1, 16), np.uint8), "U8"), ("e.down_proj_scales", np.full((2, 3, 1), 127, np.uint8), "U8")])
    for name, config in CONFIGS.items():
        with open(os.path.join(folders["hub_config"], name), "w") as f:
            json.dump(config, f)
    handshake_seeds(folders["handshake"])
    data_tcp_seeds(folders["data_tcp"])
    data_ucx_seeds(folders["data_ucx"])
    onnx_seeds(folders["onnx"])
    infer_message_seeds(folders["infer_message"])
    with open(os.path.join(folders["npz"], "three"), "wb") as f:
        np.savez(f, a=np.ones((2, 3), np.float32), b=np.arange(4), c=np.array(True))


main()
