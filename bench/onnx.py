"""ONNX models on one core in float32 against onnxruntime, in one run: the CNNs of golden-onnx, and ResNet-50, MobileNetV3-Large and EfficientNet-B0 of real
size with random weights, written here as exporters write them (batch norms folded, SiLU as Sigmoid and Mul).

The two take turns; of all runs the time below which a fifth of them lies, in processor time of the thread, so that other load counts less. Wants onnxruntime and
numpy: PYTHON=VENV/bin/python make bench BENCH=onnx. BENCH_ARGS: names of models."""
import os
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    import onnxruntime
except ImportError as why:
    print(f"skipped: {why} (pip install onnxruntime numpy, and PYTHON=...)")
    sys.exit(0)

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
OURS = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "bench", "onnx")
GOLDEN = os.environ.get("HP_GOLDEN_ONNX", os.path.join(os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared")), "golden-onnx"))
CNNS = ("resnet", "resnext", "mobilenet", "efficientnet", "regnet", "densenet", "inception", "shufflenet", "convnext", "vgg", "unet", "fcn", "yolo", "fpn")
SECONDS = float(os.environ.get("BENCH_SECONDS", "1.0"))  # for each of the two


# ---- writing models ----------------------------------------------------------------------------------------------------------------

def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def field(number, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(n, value):
    return varint(n << 3) + varint(value & (1 << 64) - 1)


class Writer:
    """A graph of pictures: every method adds a node and returns the name of what it makes."""

    def __init__(self, size=224):
        self.graph, self.random, self.made = [], np.random.default_rng(1), 0
        self.graph.append(field(11, self.value("x", (1, 3, size, size))))

    def value(self, name, dims):
        shape = b"".join(field(1, number(1, d)) for d in dims)
        return field(1, name) + field(2, field(1, number(1, 1) + field(2, shape)))

    def weight(self, array):
        self.made += 1
        name = f"w{self.made}"
        self.graph.append(field(5, b"".join(number(1, d) for d in array.shape) + number(2, 1) + field(8, name) + field(9, array.astype(np.float32).tobytes())))
        return name

    def node(self, op, *inputs, **attributes):
        self.made += 1
        data = b"".join(field(1, i) for i in inputs) + field(2, f"v{self.made}") + field(4, op)
        for name, v in attributes.items():
            if isinstance(v, float):
                data += field(5, field(1, name) + varint(2 << 3 | 5) + np.float32(v).tobytes() + number(20, 1))
            elif isinstance(v, int):
                data += field(5, field(1, name) + number(3, v) + number(20, 2))
            else:
                data += field(5, field(1, name) + b"".join(number(8, i) for i in v) + number(20, 7))
        self.graph.append(field(1, data))
        return f"v{self.made}"

    def conv(self, x, in_channels, out, kernel=1, stride=1, groups=1):
        w = self.random.standard_normal((out, in_channels // groups, kernel, kernel)) * np.sqrt(2 / (in_channels // groups * kernel * kernel))
        return self.node("Conv", x, self.weight(w), self.weight(self.random.standard_normal(out) * 0.1), dilations=[1, 1], group=groups,
                         kernel_shape=[kernel, kernel], pads=[kernel // 2] * 4, strides=[stride, stride])

    def act(self, x, kind):
        return self.node("Mul", x, self.node("Sigmoid", x)) if kind == "silu" else self.node({"relu": "Relu", "hswish": "HardSwish"}[kind], x)

    def gate(self, x, channels, squeezed, inner, outer):
        g = self.node("GlobalAveragePool", x)
        g = self.act(self.conv(g, channels, squeezed), inner)
        g = self.conv(g, squeezed, channels)
        g = self.node("Sigmoid", g) if outer == "sigmoid" else self.node("HardSigmoid", g, alpha=1 / 6)
        return self.node("Mul", x, g)

    def gemm(self, x, inputs, outputs):
        w = self.random.standard_normal((outputs, inputs)) / np.sqrt(inputs)
        return self.node("Gemm", x, self.weight(w), self.weight(np.zeros(outputs)), alpha=1.0, beta=1.0, transB=1)

    def head(self, x):
        return self.node("Flatten", self.node("GlobalAveragePool", x), axis=1)

    def finish(self, y):
        self.graph.append(field(1, field(1, y) + field(2, "y") + field(4, "Identity")))
        self.graph.append(field(12, self.value("y", (1, 1000))))
        return number(1, 8) + field(7, b"".join(self.graph) + field(2, "g")) + field(8, number(2, 17))


def resnet50():
    w = Writer()
    x = w.node("MaxPool", w.act(w.conv("x", 3, 64, 7, 2), "relu"), kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            width, stride = 64 << stage, 2 if stage and not block else 1
            y = w.act(w.conv(x, channels, width), "relu")
            y = w.act(w.conv(y, width, width, 3, stride), "relu")
            y = w.conv(y, width, 4 * width)
            x = w.act(w.node("Add", y, x if block else w.conv(x, channels, 4 * width, 1, stride)), "relu")
            channels = 4 * width
    return w.finish(w.gemm(w.head(x), 2048, 1000))


def mobilenet_v3_large():
    w = Writer()
    x, channels = w.act(w.conv("x", 3, 16, 3, 2), "hswish"), 16
    for kernel, wide, out, gated, kind, stride in ((3, 16, 16, 0, "relu", 1), (3, 64, 24, 0, "relu", 2), (3, 72, 24, 0, "relu", 1), (5, 72, 40, 24, "relu", 2),
                                                   (5, 120, 40, 32, "relu", 1), (5, 120, 40, 32, "relu", 1), (3, 240, 80, 0, "hswish", 2), (3, 200, 80, 0, "hswish", 1),
                                                   (3, 184, 80, 0, "hswish", 1), (3, 184, 80, 0, "hswish", 1), (3, 480, 112, 120, "hswish", 1),
                                                   (3, 672, 112, 168, "hswish", 1), (5, 672, 160, 168, "hswish", 2), (5, 960, 160, 240, "hswish", 1),
                                                   (5, 960, 160, 240, "hswish", 1)):
        y = x if wide == channels else w.act(w.conv(x, channels, wide), kind)
        y = w.act(w.conv(y, wide, wide, kernel, stride, wide), kind)
        y = w.gate(y, wide, gated, "relu", "hard") if gated else y
        y = w.conv(y, wide, out)
        x, channels = (w.node("Add", x, y) if stride == 1 and out == channels else y), out
    x = w.head(w.act(w.conv(x, 160, 960), "hswish"))
    return w.finish(w.gemm(w.act(w.gemm(x, 960, 1280), "hswish"), 1280, 1000))


def efficientnet_b0():
    w = Writer()
    x, channels = w.act(w.conv("x", 3, 32, 3, 2), "silu"), 32
    for factor, kernel, stride, out, blocks in ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)):
        for block in range(blocks):
            step, wide = 1 if block else stride, channels * factor
            y = x if factor == 1 else w.act(w.conv(x, channels, wide), "silu")
            y = w.act(w.conv(y, wide, wide, kernel, step, wide), "silu")
            y = w.conv(w.gate(y, wide, max(1, channels // 4), "silu", "sigmoid"), wide, out)
            x, channels = (w.node("Add", y, x) if step == 1 and out == channels else y), out
    return w.finish(w.gemm(w.head(w.act(w.conv(x, 320, 1280), "silu")), 1280, 1000))


# ---- measuring ---------------------------------------------------------------------------------------------------------------------

class Theirs:
    def __init__(self, model, inputs):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        for name, array in inputs.items():
            self.binding.bind_cpu_input(name, array)
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name)
        self.run(3)

    def run(self, n):
        out = []
        for _ in range(n):
            since = time.thread_time_ns()
            self.session.run_with_iobinding(self.binding)
            out.append((time.thread_time_ns() - since) / 1e3)
        return out

    def outputs(self):
        return dict(zip([o.name for o in self.session.get_outputs()], self.binding.copy_outputs_to_cpu()))


class Ours:
    def __init__(self, model, npz, prefix):
        self.process = subprocess.Popen([OURS, model, npz, prefix], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.run(3)

    def run(self, n):
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        return [float(t) for t in self.process.stdout.readline().split()]

    def outputs(self, path):
        self.process.stdin.write(f"check {path}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n" and self.process.stdout.readline() == "\n"
        return np.load(path)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(name, model, npz, prefix, folder):
    inputs = {k[len(prefix):]: v for k, v in np.load(npz).items() if k.startswith(prefix)}
    theirs, ours = Theirs(model, inputs), Ours(model, npz, prefix)
    wanted, got = theirs.outputs(), ours.outputs(os.path.join(folder, "out.npz"))
    off = max(float(np.abs(got[k] - wanted[k]).max() / np.abs(wanted[k]).max()) for k in wanted)
    each = max(1, int(SECONDS / 10 * 1e6 / max(theirs.run(3)[1:])))
    times = {ours: [], theirs: []}
    for _ in range(10):
        for engine in times:
            times[engine] += engine.run(each)
    mine, their = (sorted(times[e])[len(times[e]) // 5] for e in (ours, theirs))
    ours.close()
    print(f"  {name:<32}{mine:>12.1f}{their:>14.1f}{their / mine:>8.2f}{off:>11.1e}", flush=True)
    return their / mine


def main():
    wanted, ratios = sys.argv[1:], {}
    models = os.path.join(GOLDEN, "models")
    names = [n for n in sorted(os.listdir(models)) if n.startswith(CNNS)] if os.path.isdir(models) else []
    real = {"ResNet-50": resnet50, "MobileNetV3-Large": mobilenet_v3_large, "EfficientNet-B0": efficientnet_b0}
    print(f"one core, float32, onnxruntime {onnxruntime.__version__}; load {os.getloadavg()[0]:.1f}; microseconds of processor time, lower fifth")
    print(f"  {'model':<32}{'ours':>12}{'onnxruntime':>14}{'times':>8}{'apart':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in real.items():
            if wanted and name not in wanted:
                continue
            model, npz = os.path.join(folder, "model.onnx"), os.path.join(folder, "in.npz")
            with open(model, "wb") as f:
                f.write(make())
            np.savez(npz, x=np.random.default_rng(2).standard_normal((1, 3, 224, 224)).astype(np.float32))
            ratios[name] = measure(name, model, npz, "", folder)
        for name in names:
            if not wanted or name in wanted:
                at = os.path.join(models, name)
                ratios[name] = measure(name, os.path.join(at, "model.onnx"), os.path.join(at, "inputs.npz"), "b1/", folder)
    if ratios:
        mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
        print(f"geometric mean {mean:.2f}, least {min(ratios.values()):.2f} ({min(ratios, key=ratios.get)}); load {os.getloadavg()[0]:.1f}")


main()
