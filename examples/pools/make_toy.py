"""Writes a small network of pictures with random weights as an ONNX file: what it says means nothing.

    make_toy.py OUT.onnx

Input `x`: n pictures of 3 x 32 x 32 numbers; output `y`: 10 numbers for each. Six convolutions, the last five with a residual or a stride, a mean and a product:
115 kB of weights. Needs Python alone."""
import random
import struct
import sys

FLOAT, DRAW = 1, random.Random(1)


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def field(number, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(at, value):
    return varint(at << 3) + varint(value)


def value(name, dims):
    shape = b"".join(field(1, number(1, d) if isinstance(d, int) else field(2, d)) for d in dims)
    return field(1, name) + field(2, field(1, number(1, FLOAT) + field(2, shape)))


class Network:
    """Each method adds a node, and returns the name of what it makes."""

    def __init__(self):
        self.parts, self.made = [], 0

    def weight(self, *dims):
        count, inputs = 1, 1
        for i, d in enumerate(dims):
            count, inputs = count * d, inputs * (d if i else 1)
        self.made += 1
        data = struct.pack(f"<{count}f", *(DRAW.gauss(0, (2 / inputs) ** 0.5) for _ in range(count)))
        self.parts.append(field(5, b"".join(number(1, d) for d in dims) + number(2, FLOAT) + field(8, f"w{self.made}") + field(9, data)))
        return f"w{self.made}"

    def node(self, op, *inputs, **attributes):
        self.made += 1
        data = b"".join(field(1, i) for i in inputs) + field(2, f"v{self.made}") + field(4, op)
        for name, v in attributes.items():
            several = isinstance(v, list)
            data += field(5, field(1, name) + (b"".join(number(8, i) for i in v) + number(20, 7) if several else number(3, v) + number(20, 2)))
        self.parts.append(field(1, data))
        return f"v{self.made}"

    def conv(self, x, inputs, outputs, stride=1):
        y = self.node("Conv", x, self.weight(outputs, inputs, 3, 3), kernel_shape=[3, 3], pads=[1] * 4, strides=[stride] * 2)
        return self.node("Relu", y)

    def file(self, y):
        self.parts.append(field(1, field(1, y) + field(2, "y") + field(4, "Identity")))
        graph = b"".join(self.parts) + field(2, "toy") + field(11, value("x", ("n", 3, 32, 32))) + field(12, value("y", ("n", 10)))
        return number(1, 8) + field(7, graph) + field(8, number(2, 17))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    net = Network()
    x = net.conv("x", 3, 16)
    for inputs, outputs in ((16, 16), (16, 32), (32, 32), (32, 32), (32, 10)):
        y = net.conv(x, inputs, outputs, 1 if inputs == outputs else 2)
        x = net.node("Add", x, y) if inputs == outputs else y
    x = net.node("Flatten", net.node("GlobalAveragePool", x), axis=1)
    with open(sys.argv[1], "wb") as f:
        f.write(net.file(net.node("Gemm", x, net.weight(10, 10), transB=1)))


if __name__ == "__main__":
    main()
