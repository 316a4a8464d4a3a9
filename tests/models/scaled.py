"""Safetensors files read and written whole, and matrices as eight bits with scales."""
import json

import numpy as np


def tensors_read(path):
    with open(path, "rb") as f:
        raw = f.read()
    size = int.from_bytes(raw[:8], "little")
    out = {}
    for name, t in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            out[name] = (t["dtype"], t["shape"], raw[8 + size + begin:8 + size + end])
    return out


def tensors_write(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(raw for _, _, raw in tensors.values()))


def values_of(dtype, shape, raw):
    if dtype == "F32":
        flat = np.frombuffer(raw, np.float32)
    elif dtype == "F16":
        flat = np.frombuffer(raw, np.float16).astype(np.float32)
    else:
        flat = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return flat.reshape(shape)


def f8_table(kind):
    """The value of each of 256 patterns, by the definition of the format (OCP 8-bit floating point)."""
    exponent_bits, mantissa_bits, bias = (4, 3, 7) if kind == "F8_E4M3" else (5, 2, 15)
    table = []
    for bits in range(256):
        exponent, mantissa = bits >> mantissa_bits & (1 << exponent_bits) - 1, bits & (1 << mantissa_bits) - 1
        sign = -1 if bits & 128 else 1
        if kind == "F8_E4M3" and bits & 127 == 127 or kind == "F8_E5M2" and exponent == 31:
            table.append(np.nan)
        else:
            part = mantissa / (1 << mantissa_bits)
            table.append(sign * (2.0 ** (exponent - bias) * (1 + part) if exponent else 2.0 ** (1 - bias) * part))
    return np.array(table, np.float32)


def tile_of(values, how):
    rows, columns = values.shape
    return {"whole": (rows, columns), "rows": (1, columns)}.get(how) or how


def quantise(values, kind, how):
    """(bytes, scales, what they stand for)"""
    table, (down, across) = f8_table(kind), tile_of(values, how)
    finite = np.where(np.isnan(table), np.float32(np.inf), table)
    rows, columns = values.shape
    scales = np.zeros((-(-rows // down), -(-columns // across)), np.float32)
    bits, back = np.zeros(values.shape, np.uint8), np.zeros(values.shape, np.float32)
    for i in range(scales.shape[0]):
        for k in range(scales.shape[1]):
            part = np.s_[i * down:(i + 1) * down, k * across:(k + 1) * across]
            scales[i, k] = np.abs(values[part]).max() / 400 or 1
            bits[part] = np.abs(finite - (values[part] / scales[i, k])[..., None]).argmin(-1)
            back[part] = table[bits[part]] * scales[i, k]
    return bits, scales, back
