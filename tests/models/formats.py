"""Writers of the two kinds of model file, a reader of one, and the number formats they hold. Needs numpy alone."""
import json
import os
import struct

import numpy as np

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
GGUF_TYPES = {"F32": 0, "F16": 1, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "BF16": 30}
BLOCKS = {"Q8_0": (32, 34), "Q4_K": (256, 144), "Q6_K": (256, 210)}  # elements and bytes of a block
ALIGNMENT = 32


def bf16_bits(x):
    """float32 to bfloat16, to nearest even, as uint16."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def q8_0_blocks(x):
    """Rows of whole blocks of 32: a float16 scale and 32 signed bytes each. Gives (scales float16 [blocks], values int8 [blocks, 32])."""
    blocks = np.ascontiguousarray(x, np.float32).reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    return scale[:, 0].astype(np.float16), np.clip(np.rint(blocks * inverse), -127, 127).astype(np.int8)


def encode(x, dtype):
    """Bytes of an array in a number format."""
    if dtype == "Q8_0":
        scale, values = q8_0_blocks(x)
        out = np.empty((len(scale), 34), np.uint8)
        out[:, :2] = scale.view(np.uint8).reshape(-1, 2)
        out[:, 2:] = values.view(np.uint8)
        return out.tobytes()
    if dtype == "BF16":
        return bf16_bits(x).tobytes()
    kinds = {"F32": np.float32, "F16": np.float16, "U8": np.uint8, "F8_E4M3": np.uint8, "F8_E5M2": np.uint8}  # those of 8 bits come as their bits
    return np.ascontiguousarray(x, kinds[dtype]).reshape(x.shape).tobytes()


def rounded(x, dtype):
    """What a reader gets back, as float32."""
    if dtype == "Q8_0":
        scale, values = q8_0_blocks(x)
        return (scale.astype(np.float32)[:, None] * values).reshape(np.shape(x))
    if dtype == "BF16":
        return (bf16_bits(x).astype(np.uint32) << 16).view(np.float32).reshape(np.shape(x))
    return np.asarray(x, {"F32": np.float32, "F16": np.float16}[dtype]).astype(np.float32)


def bytes_of(shape, dtype):
    n = int(np.prod(shape, dtype=np.int64))
    if dtype in BLOCKS:
        return n // BLOCKS[dtype][0] * BLOCKS[dtype][1]
    return n * {"F32": 4, "F16": 2, "BF16": 2}[dtype]


# ---- GGUF version 3 ------------------------------------------------------------------------------------------------

def _string(s):
    raw = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(kind, v):
    if kind == STRING:
        return _string(v)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def _key(name, kind, v):
    head = _string(name)
    if isinstance(v, (list, tuple)):
        return head + struct.pack("<IIQ", ARRAY, kind, len(v)) + b"".join(_value(kind, x) for x in v)
    return head + struct.pack("<I", kind) + _value(kind, v)


def gguf_write(path, keys, tensors):
    """keys: (name, kind, value or list); tensors: (name, shape outermost first, dtype, function that yields its bytes). Streams the data."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(_key(*k) for k in keys)
    offset, infos = 0, []
    for name, shape, dtype, _ in tensors:
        infos.append(_string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
                     + struct.pack("<IQ", GGUF_TYPES[dtype], offset))
        offset += -(-bytes_of(shape, dtype) // ALIGNMENT) * ALIGNMENT
    head += b"".join(infos)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGNMENT))
        for name, shape, dtype, produce in tensors:
            written = 0
            for chunk in produce():
                f.write(chunk)
                written += len(chunk)
            assert written == bytes_of(shape, dtype), name
            f.write(bytes(-written % ALIGNMENT))


VALUE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class _Head:
    """The head of a file, read from front to back."""

    def __init__(self, f):
        self.f = f

    def number(self, form):
        return struct.unpack("<" + form, self.f.read(struct.calcsize("<" + form)))[0]

    def string(self):
        return self.f.read(self.number("Q")).decode(errors="replace")

    def skip(self, kind):
        if kind == ARRAY:
            inner, n = self.number("I"), self.number("Q")
            if inner in VALUE_BYTES:
                self.f.seek(VALUE_BYTES[inner] * n, 1)
            else:
                for _ in range(n):
                    self.skip(inner)
        elif kind == STRING:
            self.f.seek(self.number("Q"), 1)
        else:
            self.f.seek(VALUE_BYTES[kind], 1)


def gguf_tensors(path):
    """{name: float32 array} of all tensors of a GGUF file, dequantised; F32, F16, Q8_0 and Q4_1."""
    with open(path, "rb") as f:
        head, rows = _Head(f), []
        assert f.read(4) == b"GGUF" and head.number("I") == 3, path
        n_tensors, n_keys = head.number("Q"), head.number("Q")
        for _ in range(n_keys):
            head.string()
            head.skip(head.number("I"))
        for _ in range(n_tensors):
            name, n_dims = head.string(), head.number("I")
            rows.append((name, [head.number("Q") for _ in range(n_dims)][::-1], head.number("I"), head.number("Q")))
        begin = -(-f.tell() // ALIGNMENT) * ALIGNMENT
    data = np.memmap(path, np.uint8, "r")
    return {name: _dequantised(data[begin + offset:], shape, kind) for name, shape, kind, offset in rows}


def _dequantised(data, shape, kind):
    n = int(np.prod(shape))
    if kind == 0:
        return data[:4 * n].view(np.float32).reshape(shape)
    if kind == 1:
        return data[:2 * n].view(np.float16).astype(np.float32).reshape(shape)
    size = {3: 20, 8: 34}[kind]
    blocks = np.ascontiguousarray(data[:n // 32 * size].reshape(-1, size))
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if kind == 8:
        return (scale * blocks[:, 2:].view(np.int8)).reshape(shape)
    least, nibbles = blocks[:, 2:4].copy().view(np.float16).astype(np.float32), blocks[:, 4:]
    return (np.concatenate([nibbles & 15, nibbles >> 4], axis=1) * scale + least).reshape(shape)


# ---- safetensors ---------------------------------------------------------------------------------------------------

def safetensors_write(path, tensors):
    """tensors: (name, array, dtype)."""
    header, offset, data = {"__metadata__": {"format": "pt"}}, 0, []
    for name, array, dtype in tensors:
        raw = encode(array, dtype)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        data.append(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def hub_write(folder, config, tensors, shards, files):
    """A folder with `shards` safetensors files (with an index when there is more than one) and other JSON files by name."""
    os.makedirs(folder, exist_ok=True)
    for name, content in {"config.json": config, **files}.items():
        with open(os.path.join(folder, name), "w") as f:
            f.write(content if isinstance(content, str) else json.dumps(content, indent=1, ensure_ascii=False))
    if shards == 1:
        safetensors_write(os.path.join(folder, "model.safetensors"), tensors)
        return
    weight_map, per = {}, -(-len(tensors) // shards)
    for i in range(shards):
        part, name = tensors[i * per:(i + 1) * per], f"model-{i + 1:05}-of-{shards:05}.safetensors"
        safetensors_write(os.path.join(folder, name), part)
        weight_map.update({t[0]: name for t in part})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": sum(bytes_of(a.shape, d) for _, a, d in tensors)}, "weight_map": weight_map}, f, indent=1)


# ---- ONNX ----

def _varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def _field(number, value):
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _onnx_tensor(name, array):
    kind = {"float32": 1, "int32": 6, "int64": 7, "bool": 9, "float64": 11}[str(array.dtype)]
    return b"".join(_field(1, d) for d in array.shape) + _field(2, kind) + _field(8, name) + _field(9, array.tobytes())


def _onnx_attribute(name, value):
    if isinstance(value, int):
        return _field(1, name) + _field(3, value) + _field(20, 2)
    if isinstance(value, float):
        return _field(1, name) + _field(2, value) + _field(20, 1)
    if isinstance(value, str):
        return _field(1, name) + _field(4, value) + _field(20, 3)
    if isinstance(value, np.ndarray):
        return _field(1, name) + _field(5, _onnx_tensor("", value)) + _field(20, 4)
    return _field(1, name) + b"".join(_field(8, v) for v in value) + _field(20, 7)


def onnx_bytes(nodes, inputs, outputs, weights=(), opset=18):
    """nodes: (operator, inputs, outputs, attributes); inputs: (name, type number, sizes, of which texts are free)."""
    def info(name, kind=None, sizes=()):
        dims = b"".join(_field(1, _field(2, d) if isinstance(d, str) else _field(1, d)) for d in sizes)
        return _field(1, name) + (_field(2, _field(1, _field(1, kind) + _field(2, dims))) if kind else b"")
    graph = b""
    for operator, ins, outs, attributes in nodes:
        node = b"".join(_field(1, i) for i in ins) + b"".join(_field(2, o) for o in outs) + _field(4, operator)
        graph += _field(1, node + b"".join(_field(5, _onnx_attribute(k, v)) for k, v in attributes.items()))
    graph += b"".join(_field(5, _onnx_tensor(name, array)) for name, array in weights)
    graph += b"".join(_field(11, info(*i)) for i in inputs) + b"".join(_field(12, info(o)) for o in outputs)
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, opset))
