"""`hpctl model run` against known answers ($HP_GOLDEN_ONNX, by default ../shared/golden-onnx): whole ONNX models, whole and cut into stages; single
operators, opset by opset; malformed files, each of which has a reason; published networks, where they are."""
import concurrent.futures
import hashlib
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from tap import main, skip, test

HPCTL = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "hpctl")
GOLDEN = os.environ.get("HP_GOLDEN_ONNX", os.path.join(os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared")), "golden-onnx"))
CLOSE = 1e-4  # of the largest value of an output
MEMORY = 2 << 30
REFERENCE = ["--compute", "f32-reference"]
ALL = "HP_ALL_CASES" in os.environ
GPU_MODELS = ("bert-ts17", "convnext-ts13", "mobilenet_v3-ts17", "shufflenet-ts11", "swin-ts17", "unet-dy18", "vit-dy18", "yolo-ts17", "attentive-ts13", "fpn-ts13")  # of all with HP_ALL_CASES


def golden(*names):
    if not os.path.exists(os.path.join(GOLDEN, *names)):
        skip(f"{os.path.join(GOLDEN, *names)} is not there (HP_GOLDEN_ONNX points at ONNX models with known answers)")
    return os.path.join(GOLDEN, *names)


def model_run(model, given, out, *options, **variables):
    return subprocess.run([HPCTL, "model", "run", model, "--input", given, "-o", out, *options], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "HP_TEST_LEAST_WORK": "1", **variables},  # small models are cut for threads as large ones are
                          preexec_fn=None if variables or "ASAN_OPTIONS" in os.environ else lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)))


def outputs_of(model, given, out, *options, **variables):
    run = model_run(model, given, out, *options, **variables)
    assert run.returncode == 0, f"{model} {options}: {run.stderr}"
    return np.load(out)


def side_by_side(work, items):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, items))


def model_check(name, *options):
    at = golden("models", name)
    expected = np.load(os.path.join(at, "expected.npz"))
    model, given = os.path.join(at, "model.onnx"), os.path.join(at, "inputs.npz")
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.npz")
        for case in sorted({k.split("/")[0] for k in expected}):
            whole = outputs_of(model, given, out, "--case", case, "--threads", "1", *options)
            whole = {k: whole[k] for k in whole}
            assert sorted(whole) == sorted(k for k in expected if k.startswith(case + "/")), (name, case, sorted(whole))
            for k, values in whole.items():
                assert values.dtype == expected[k].dtype and values.shape == expected[k].shape, (name, k, values.dtype, values.shape)
                off = np.abs(values - expected[k]).max() / np.abs(expected[k]).max()
                assert off <= CLOSE, f"{name} {k}: {off} of the largest"
            for stages in ("3", "7") if case == "b1" else ("2",):
                cut = outputs_of(model, given, out, "--case", case, "--stages", stages, *options)
                assert all(np.array_equal(cut[k], whole[k]) for k in whole), f"{name} {case}: cut into {stages} stages it makes other numbers"
            for threads in () if options else ("3",) if case == "b1" else ("2",):
                shared = outputs_of(model, given, out, "--case", case, "--threads", threads)
                assert all(np.array_equal(shared[k], whole[k]) for k in whole), f"{name} {case}: {threads} threads make other numbers"


def models_check(exporter):
    names = [n for n in sorted(os.listdir(golden("models"))) if exporter in n]
    assert len(names) > 10, names
    side_by_side(model_check, names)
    side_by_side(lambda name: model_check(name, *REFERENCE), names)


@test
def models_exported_by_torchscript_are_right_whole_and_cut():
    models_check("-ts")


@test
def models_exported_by_torch_export_are_right_whole_and_cut():
    models_check("-dy")


GPU = {"HP_CUDA_PLUGIN": os.path.join(os.path.dirname(HPCTL), "tests", "cuda_on_cpu", "libhp-cuda.so")}  # the stand-in


def gpu_check(name):
    at = golden("models", name)
    expected, device = np.load(os.path.join(at, "expected.npz")), ["--case", "b1", "--device", "cuda:0,mem=64MiB"]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.npz")
        made = [outputs_of(os.path.join(at, "model.onnx"), os.path.join(at, "inputs.npz"), out, *device, *options, **GPU) for options in ([], ["--stages", "3"])]
        for k in made[0]:
            off = np.abs(made[0][k] - expected[k]).max() / np.abs(expected[k]).max()
            assert made[0][k].dtype == expected[k].dtype and off <= CLOSE, f"{name} {k}: {off} of the largest"
            assert np.array_equal(made[0][k], made[1][k]), f"{name} {k}: cut it makes other numbers"


@test
def a_gpu_gives_what_the_models_are_known_to_give_whole_and_cut():
    side_by_side(gpu_check, [n for n in sorted(os.listdir(golden("models"))) if os.path.isdir(golden("models", n)) and (ALL or n in GPU_MODELS)])


def fields(data):
    """Fields of a protobuf message: number and value."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(tag & 7)
        size = varint() if size is None else size
        at += size
        yield tag >> 3, data[at - size:at]


def names_of(model):
    """Inputs without weights, and outputs."""
    with open(model, "rb") as f:
        graph = next(v for k, v in fields(f.read()) if k == 7)
    name = {k: [next(v for n, v in fields(item) if n == field).decode() for number, item in fields(graph) if number == k]
            for k, field in ((5, 8), (11, 1), (12, 1))}
    return [n for n in name[11] if n not in name[5]], name[12]


def is_close(got, wanted):
    if wanted.dtype.kind in "iub":
        return np.array_equal(got, wanted)
    with np.errstate(invalid="ignore"):
        return np.all((np.abs(got - wanted) <= 1e-5 + 1e-4 * np.abs(wanted)) | (got == wanted) | (np.isnan(got) & np.isnan(wanted)))


def case_check(folder):
    """What is wrong with a case; nothing: None."""
    model, given, out = (os.path.join(folder, n) for n in ("model.onnx", "in.npz", "out.npz"))
    inputs, outputs = names_of(model)
    np.savez(given, **{n: np.load(os.path.join(folder, n + ".npy")) for n in inputs})
    for options in [], REFERENCE:
        run = model_run(model, given, out, *options)
        if run.returncode != 0:
            return f"{folder} {options}: {run.stderr.strip()}"
        made = np.load(out)
        for i, name in enumerate(outputs):
            wanted = np.load(os.path.join(folder, f"y{i}.npy"))
            if made[name].dtype != wanted.dtype or made[name].shape != wanted.shape or not is_close(made[name], wanted):
                return f"{folder} {options}: output {name}"
    return None


@test
def single_operators_are_right_opset_by_opset():
    archive = golden("operators.zip")
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(archive).extractall(folder)
        cases = sorted(os.path.join(folder, n) for n in os.listdir(folder) if os.path.isdir(os.path.join(folder, n)))
        wrong = [w for w in side_by_side(case_check, cases) if w]
    assert len(cases) > 400 and not wrong, f"{len(wrong)} of {len(cases)}: {wrong[:10]}"


@test
def malformed_files_are_refused_by_name_and_reason_in_2_gib():
    folder = golden("malformed")
    files = sorted(n for n in os.listdir(folder) if n.endswith(".onnx"))
    with tempfile.TemporaryDirectory() as at:
        given, out = os.path.join(at, "in.npz"), os.path.join(at, "out.npz")
        np.savez(given, x=np.ones((2, 3, 8, 8), np.float32))
        wrong = []
        for name in files:
            run = model_run(os.path.join(folder, name), given, out)
            if (run.returncode == 0) != (name == "good.onnx") or run.returncode not in (0, 1, 4, 6):
                wrong.append(f"{name}: exit {run.returncode}: {run.stderr.strip()[:200]}")
            if run.returncode and not (run.stderr.startswith("hpctl: ") and name in run.stderr + name * ("node" in run.stderr)):
                wrong.append(f"{name} is not named: {run.stderr.strip()[:200]}")
        gguf = os.path.join(at, "a.gguf")
        with open(gguf, "wb") as f:
            f.write(b"GGUF" + bytes(60))
        run = model_run(gguf, given, out)
        assert run.returncode == 1 and "a.gguf: big-endian GGUF (version field 0)" in run.stderr, run  # language models run too: it is read as one
    assert len(files) > 50 and not wrong, "\n".join(wrong)


@test
def arrays_of_other_names_types_and_sizes_are_refused():
    model = golden("malformed", "good.onnx")
    with tempfile.TemporaryDirectory() as at:
        given, out = os.path.join(at, "in.npz"), os.path.join(at, "out.npz")
        for arrays, words in (({"y": np.ones((1, 3, 8, 8), np.float32)}, "has no array x"),
                              ({"x": np.ones((1, 3, 8, 8), np.float64)}, "is float64 1x3x8x8; the model wants float32 n x 3 x 8 x 8"),
                              ({"x": np.ones((1, 3, 8, 9), np.float32)}, "float32 1x3x8x9"),
                              ({"x": np.ones((1, 3, 8, 8), np.float32), "z": np.ones(1)}, "array z is no input"),
                              ({"x": np.array(["text"])}, "its numbers are")):
            np.savez(given, **arrays)
            run = model_run(model, given, out)
            assert run.returncode == 1 and words in run.stderr, (words, run)
            assert not os.path.exists(out)
        np.savez_compressed(given, x=np.ones((1, 3, 8, 8), np.float32))
        run = model_run(model, given, out)
        assert run.returncode == 1 and "numpy.savez" in run.stderr, run
        with open(given, "wb") as f:
            f.write(b"PK")
        run = model_run(model, given, out)
        assert run.returncode == 1 and "no .npz" in run.stderr, run


def described(model, *options):
    return subprocess.run([HPCTL, "model", "describe", model, *options], capture_output=True, text=True, timeout=60)


@test
def describe_says_inputs_and_outputs_with_free_sizes_by_name():
    seen = 0
    for name in sorted(os.listdir(golden("models"))):
        at = os.path.join(golden("models"), name)
        if not os.path.isdir(at):
            continue
        run = described(os.path.join(at, "model.onnx"), "-o", "json")
        assert run.returncode == 0, f"{name}: {run.stderr}"
        says, inputs, expected = json.loads(run.stdout), np.load(os.path.join(at, "inputs.npz")), np.load(os.path.join(at, "expected.npz"))
        assert says["lacking"] == [] and sum(says["operators"].values()) == says["nodes"] > 0, says
        assert sum(t["bytes"] for t in says["tensors"].values()) <= says["weight_bytes"], says
        for values, arrays in ((says["inputs"], inputs), (says["outputs"], expected)):
            for case in {k.split("/")[0] for k in arrays}:
                sizes = {}
                for v in values:
                    a = arrays[f"{case}/{v['name']}"]
                    assert v["type"] in (None, str(a.dtype)), (name, v, a.dtype)
                    if v["shape"] is None:
                        continue
                    assert len(v["shape"]) == a.ndim, (name, v, a.shape)
                    for said, size in zip(v["shape"], a.shape):
                        seen += isinstance(said, str)
                        # exporters give sizes of outputs names that hold for the traced size alone
                        wanted = said if isinstance(said, int) else size if said is None or values is says["outputs"] else sizes.setdefault(said, size)
                        assert wanted == size, (name, v, a.shape)
    assert seen > 20, seen
    plain = described(golden("malformed", "good.onnx"))
    assert plain.returncode == 0 and "x  float32 n x 3 x 8 x 8" in plain.stdout and "Conv" in plain.stdout, plain


@test
def describe_names_operators_that_are_lacking_and_refuses_what_is_malformed():
    lacking = []
    for name in sorted(n for n in os.listdir(golden("malformed")) if n.endswith(".onnx")):
        run = described(golden("malformed", name), "-o", "json")
        assert run.returncode in (0, 1, 4, 6), (name, run)
        if run.returncode == 0:
            lacking += json.loads(run.stdout)["lacking"]
        else:
            assert name in json.loads(run.stdout)["error"]["message"], run.stdout
    assert lacking


@test
def json_has_the_arrays_too():
    model = golden("malformed", "good.onnx")
    with tempfile.TemporaryDirectory() as at:
        given, out = os.path.join(at, "in.npz"), os.path.join(at, "out.npz")
        np.savez(given, x=np.ones((1, 3, 8, 8), np.float32))
        arrays = outputs_of(model, given, out)
        run = model_run(model, given, "json")
        assert run.returncode == 0, run
        for name, array in json.loads(run.stdout).items():
            assert array["shape"] == list(arrays[name].shape)
            assert np.allclose(np.array(array["data"]), arrays[name].ravel())


def profiled(model, *options):
    return subprocess.run([HPCTL, "profile", "model", model, *options], capture_output=True, text=True, timeout=60)


@test
def a_profile_of_a_model_is_planned_and_simulated():
    with tempfile.TemporaryDirectory() as at:
        profile, plan, cluster, workload = (os.path.join(at, n) for n in ("profile.json", "plan.json", "cluster.json", "workload.json"))
        run = profiled(golden("models", "resnet-ts11", "model.onnx"), "--local", "--batches", "1,4", "--blocks", "5", "--budget", "0.5", "-o", profile)
        assert run.returncode == 0 and "the blocks' sum is" in run.stdout, run
        made = json.load(open(profile))
        assert len(made["layers"]) == 5 and [m["batch"] for m in made["measured"]] == [1, 4], made
        for i, m in enumerate(made["measured"]):
            blocks = sum(table["seconds"][0][i] for table in made["latency"]["cpu-core"].values())
            assert abs(blocks / m["sum_s"] - 1) < 1e-6, (blocks, m)
        json.dump({"format": "hp-cluster/1", "pools": [{"kind": "cpu-core", "count": 4, "devices_per_node": 1}],
                   "nic": {"bandwidth_bytes_per_s": 1.25e9, "latency_s": 0}}, open(cluster, "w"))
        json.dump({"format": "hp-workload/1", "models": [{"name": "resnet", "profile": profile, "weight": 1, "slo_s": 1}], "slo_margin": 0.4, "max_stages": 2,
                   "pipelines_per_assignment": 0, "shares": {"cpu-core": [1]}}, open(workload, "w"))
        for command in (["plan", "pools", "-o", plan], ["simulate", plan, "--load", "0.5"]):
            run = subprocess.run([HPCTL, *command, "--cluster", cluster, "--workload", workload], capture_output=True, text=True, timeout=60)
            assert run.returncode == 0, run


@test
def a_profile_names_what_it_lacks():
    bert = golden("models", "bert-ts17", "model.onnx")
    for options, says in ((["--local"], "(s) has no size"), (["--local", "--dim", "s"], "NAME=SIZE"), (["--local", "--batches", "2,1"], "must rise"),
                          ([], "(s) has no size"), (["--local", "--blocks", "0"], "out of range")):
        run = profiled(bert, *options)
        assert run.returncode != 0 and says in run.stderr, (options, run)
    run = profiled(bert, "--local", "--dim", "s=16", "--batches", "2", "--budget", "0.2", "-o", "json")
    assert run.returncode == 0 and json.loads(run.stdout)["measured"][0]["batch"] == 2, run


def varint(v):
    return bytes([v]) if v < 128 else bytes([v & 127 | 128]) + varint(v >> 7)


def message(number, value):
    """A field of protobuf: a number, or bytes."""
    return varint(number << 3) + varint(value % 2**64) if isinstance(value, int) else varint(number << 3 | 2) + varint(len(value)) + value


TYPES = {"float32": 1, "uint8": 2, "int32": 6, "int64": 7, "bool": 9, "float64": 11, "uint64": 13}


def attribute(name, value):
    field, kind, many = (2, 1, False) if isinstance(value, float) else (3, 2, False) if isinstance(value, int) else (4, 3, False) if isinstance(value, str) else (8, 7, True)
    values = b"".join(message(field, v) for v in value) if many else varint(field << 3 | 5) + struct.pack("<f", value) if field == 2 else message(field, value.encode() if field == 4 else value)
    return message(1, name.encode()) + values + message(20, kind)


def one_node(operator, opset, attributes, arrays, weights=b"", outputs=(b"y",)):
    """A model of one node, from x0, x1, .. to y."""
    def info(name, kind, shape=None):
        sizes = b"" if shape is None else message(2, b"".join(message(1, message(1, n)) for n in shape))
        return message(1, name) + message(2, message(1, (message(1, kind) if kind else b"") + sizes))

    node = b"".join(message(1, f"x{i}".encode()) for i in range(len(arrays))) + (message(1, b"w") if weights else b"") + b"".join(message(2, o) for o in outputs) + message(4, operator.encode())
    graph = message(1, node + b"".join(message(5, attribute(*a)) for a in attributes.items())) + message(2, b"g") + weights
    graph += b"".join(message(11, info(f"x{i}".encode(), TYPES[str(a.dtype)], a.shape)) for i, a in enumerate(arrays)) + b"".join(message(12, info(o, 0)) for o in outputs)
    return message(1, 8) + message(7, graph) + message(8, message(2, opset))


def run_one_node(folder, operator, opset, attributes, arrays, *options):
    model, given, out = (os.path.join(folder, f) for f in ("one.onnx", "in.npz", "out.npz"))
    with open(model, "wb") as f:
        f.write(one_node(operator, opset, attributes, arrays))
    np.savez(given, **{f"x{i}": a for i, a in enumerate(arrays)})
    run = model_run(model, given, out, *options)
    return run, np.load(out)["y"] if run.returncode == 0 else None


@test
def operators_beside_those_of_the_archive_do_what_onnx_says():
    x = np.array([[-3, -0.25, 0, 0.45, 2, 2]], np.float32)
    picture = (np.arange(2 * 3 * 2 * 4, dtype=np.float32).reshape(2, 3, 2, 4) % 7 - 3) / 2
    byte, long, whole = np.array([1, 3, 200], np.uint8), np.array([5, 2**63 + 8, 7], np.uint64), np.array([2**53, 2**53 + 1], np.int64)
    none, ids, many = np.zeros(0, np.int32), np.array([[0]], np.int64), np.ones(2**22, np.float32)

    def normal(axes):
        return (picture - picture.mean(axes, keepdims=True)) / (picture.std(axes, keepdims=True) + 1e-9)

    def columns(x, f):  # three at a time
        return np.stack([f(x[..., i:i + 3], (3, 4)) for i in range(2)], -1)

    def largest_of(x):
        return columns(x, np.max)

    def mean_of(x):
        return columns(x, np.mean)

    statistics = [(np.arange(24, dtype=np.float32).reshape(3, 2, 4) * k % 5 + 1) / 4 for k in (1, 2, 3, 4)]
    pairs = picture.reshape(2, 3, 2, 2, 2)
    cases = [("Shrink", 9, {"lambd": 0.4, "bias": 0.1}, [x], np.where(x < -0.4, x + np.float32(0.1), np.where(x > 0.4, x - np.float32(0.1), 0))),
             ("Shrink", 9, {}, [x], np.where(abs(x) > 0.5, x, 0)),
             ("Hardmax", 13, {}, [x], np.float32([[0, 0, 0, 0, 1, 0]])),
             ("Hardmax", 11, {}, [picture], np.eye(24, dtype=np.float32)[picture.reshape(2, 24).argmax(1)].reshape(picture.shape)),  # all behind the first axis are one
             ("LpPool", 11, {"kernel_shape": [1, 2], "strides": [1, 2]}, [picture], np.sqrt((pairs**2).sum(-1))),
             ("LpPool", 18, {"kernel_shape": [1, 2], "strides": [1, 2], "p": 1}, [picture], abs(pairs).sum(-1)),
             # A window that is larger than the input, by less than a stride, is one where sizes are rounded up.
             *((kind, 12, {"kernel_shape": [4, 3], "strides": [3, 1], "ceil_mode": 1}, [picture], f(picture.reshape(2, 3, 1, 2, 4))) for kind, f in (("MaxPool", largest_of), ("AveragePool", mean_of))),
             ("GlobalLpPool", 7, {"p": 3}, [picture], np.cbrt((abs(picture)**3).sum((2, 3), keepdims=True))),
             ("MeanVarianceNormalization", 9, {}, [picture], normal((0, 2, 3))),
             ("MeanVarianceNormalization", 13, {"axes": [-1, 1]}, [picture], normal((1, 3))),
             ("BatchNormalization", 7, {"spatial": 0}, [picture, *statistics], (picture - statistics[2]) / np.sqrt(statistics[3] + 1e-5) * statistics[0] + statistics[1]),
             ("CastLike", 15, {}, [x, np.array([1], np.int64)], x.astype(np.int64)),
             ("BitShift", 11, {"direction": "LEFT"}, [byte, np.array([2, 1, 1], np.uint8)], np.array([4, 6, 144], np.uint8)),
             ("BitShift", 11, {"direction": "RIGHT"}, [long, np.array([1], np.uint64)], long >> np.uint64(1)),
             ("BitwiseAnd", 18, {}, [byte, np.array([3], np.uint8)], byte & 3), ("BitwiseOr", 18, {}, [byte, np.array([4], np.uint8)], byte | 4),
             ("BitwiseXor", 18, {}, [byte, byte[::-1].copy()], byte ^ byte[::-1]), ("BitwiseNot", 18, {}, [byte], ~byte),
             # Without axes nothing is reduced where the attribute says so; what else the operator does it does.
             ("ReduceSumSquare", 18, {"noop_with_empty_axes": 1}, [x], x * x), ("ReduceSum", 13, {"noop_with_empty_axes": 1}, [x], x), ("ReduceMax", 18, {"noop_with_empty_axes": 1}, [picture], picture),
             ("ReduceSum", 13, {"noop_with_empty_axes": 0, "keepdims": 0}, [x], np.float32(x.sum())), ("ReduceMean", 18, {"noop_with_empty_axes": 1}, [x, np.array([1], np.int64)], x.mean(1, keepdims=True)),
             ("Scatter", 9, {"axis": 1}, [x, np.array([[1, 4]], np.int64), np.float32([[8, 9]])], np.float32([[-3, 8, 0, 0.45, 9, 2]])),
             # What is endless is the largest, too; and integers that float64 has not stay what they are.
             ("Hardmax", 13, {}, [np.float32([[1, np.inf, np.inf], [-np.inf] * 3])], np.float32([[0, 1, 0], [1, 0, 0]])),
             ("TopK", 11, {"axis": 0}, [whole[::-1].copy(), np.array([1], np.int64)], whole[1:]), ("TopK", 11, {"axis": 0, "largest": 0}, [whole, np.array([1], np.int64)], whole[:1]),
             *(("TopK", 11, {"axis": 0, "largest": largest}, [np.float32([1, np.nan, np.inf, np.nan, 2]), np.array([3], np.int64)], np.float32(wanted)) for largest, wanted in ((1, [np.nan, np.nan, np.inf]), (0, [1, 2, np.inf]))),
             ("CumSum", 14, {}, [np.array([2**53, 1], np.int64), np.array(0, np.int64)], whole), ("CumSum", 14, {"exclusive": 1, "reverse": 1}, [x, np.array(1, np.int64)], (x[:, ::-1].cumsum(1) - x[:, ::-1])[:, ::-1]),
             ("CumSum", 14, {}, [np.zeros((3, 0), np.float32), np.array(1, np.int64)], np.zeros((3, 0), np.float32)),
             ("Cast", 13, {"to": 1}, [np.array([2**63 + 2**41], np.uint64)], np.float32([2**63 + 2**41])), ("Cast", 13, {"to": 13}, [np.float64([1.5e19])], np.array([15 * 10**18], np.uint64)),
             ("ReduceLogSum", 18, {"keepdims": 0}, [np.array([7, 30], np.int32)], np.int32(3)), ("ReduceLogSumExp", 18, {"keepdims": 0}, [np.array([7, 3], np.int32)], np.int32(7)),
             ("ReduceMin", 18, {"keepdims": 0}, [none], none.dtype.type(2**31 - 1)), ("ReduceMax", 18, {"keepdims": 0}, [none], none.dtype.type(-2**31)), ("ReduceMin", 18, {"keepdims": 0}, [byte[:0]], np.uint8(255))]
    refusals = [("BitShift", {"direction": "UP"}, [byte, byte], '"UP", neither LEFT nor RIGHT'), ("BitShift", {"direction": "LEFT"}, [np.array([1], np.int64)] * 2, "of int64"),
                ("BitwiseNot", {}, [x], "of float32"), ("BitwiseAnd", {}, [x, x], "of float32"), ("LpPool", {"kernel_shape": [1, 1], "p": 0}, [picture], "of order 0"),
                ("Conv", {"group": 2**62}, [np.zeros((1, 0, 1), np.float32), np.zeros((0, 0, 1), np.float32)], "4611686018427387904 groups"), ("GatherND", {"batch_dims": 2**32}, [x, ids], "4294967296 of batches"),
                ("Pad", {}, [x, np.array([1, 1, 0, 0], np.int64), np.float32(0), np.array([1, 1], np.int64)], "axis 1 twice"), ("Pad", {}, [x, np.array([0, -9, 0, 9], np.int64)], "pads of -9 and 9 on 6"),
                ("Gemm", {"alpha": 1e30}, [np.ones((1, 1), np.int32)] * 2, "of int32"), ("Einsum", {"equation": "a,b,c->"}, [many] * 3, "too large")]
    with tempfile.TemporaryDirectory() as folder:
        for options in [], REFERENCE:
            for operator, opset, attributes, arrays, wanted in cases:
                run, got = run_one_node(folder, operator, opset, attributes, arrays, *options)
                assert run.returncode == 0 and got.dtype == wanted.dtype and got.shape == wanted.shape and is_close(got, wanted), (operator, opset, run.stderr, got, wanted)
            for operator, attributes, arrays, says in refusals:
                run, _ = run_one_node(folder, operator, 18, attributes, arrays, *options)
                assert run.returncode == 1 and says in run.stderr and f"({operator})" in run.stderr, (operator, run)


@test
def sizes_of_arrays_without_elements_have_a_bound_too():
    def weight(*dims):
        return message(5, b"".join(message(1, d) for d in dims) + message(2, 1) + message(8, b"w"))

    x = np.zeros((0, 1, 1), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        model, given, out = (os.path.join(folder, f) for f in ("one.onnx", "in.npz", "out.npz"))
        np.savez(given, x0=x)
        for dims, fits in (((0, 2**20, 2**30), True), ((0, 2**40, 2**40), False), ((2**40, 2**40, 0), False)):
            with open(model, "wb") as f:
                f.write(one_node("Add", 13, {}, [x], weight(*dims)))
            run = model_run(model, given, out)
            assert fits and run.returncode == 0 or not fits and run.returncode == 1 and "elements is too large" in run.stderr, (dims, run)


@test
def other_outputs_of_poolings_and_dropouts_are_those_of_their_opsets():
    x = np.random.default_rng(3).permutation(2 * 3 * 4 * 5).astype(np.float32).reshape(1, 2, 3, 4, 5)
    blocks = x[:, :, :2, :, :4].reshape(1, 2, 1, 2, 2, 2, 2, 2).transpose(0, 1, 2, 4, 6, 3, 5, 7).reshape(1, 2, 1, 2, 2, 8)
    ones = np.ones((2, 3), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        model, given, out = (os.path.join(folder, f) for f in ("one.onnx", "in.npz", "out.npz"))

        def made(operator, opset, attributes, array):
            with open(model, "wb") as f:
                f.write(one_node(operator, opset, attributes, [array], outputs=(b"y", b"z")))
            np.savez(given, x0=array)
            return outputs_of(model, given, out)

        for order in 0, 1:
            got = made("MaxPool", 12, {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2], "storage_order": order}, x)
            assert (got["y"] == blocks.max(-1)).all()
            for channel in 0, 1:
                flat = x[0, channel].flatten("F" if order else "C")
                assert (flat[got["z"][0, channel] - channel * flat.size] == got["y"][0, channel]).all(), (order, got["z"])
        got = made("MaxPool", 12, {"kernel_shape": [1, 1], "pads": [1, 1, 1, 1], "storage_order": 1}, np.zeros((1, 1, 0, 0), np.float32))  # of nothing
        assert (got["y"] == -np.inf).all() and got["y"].shape == got["z"].shape == (1, 1, 2, 2), got["z"]
        for opset, mask in ((7, 0 * ones), (10, ones < 0), (13, ones > 0)):
            got = made("Dropout", opset, {}, ones)
            assert (got["y"] == ones).all() and got["z"].dtype == mask.dtype and (got["z"] == mask).all(), (opset, got["z"])


@test
def external_data_is_read_from_the_models_folder_and_by_no_link_from_elsewhere():
    def write(at, data):
        os.makedirs(os.path.dirname(at), exist_ok=True)
        with open(at, "wb") as f:
            f.write(data)
        return at

    x, secret = np.float32([1, 2]), np.float32([10, 20]).tobytes()

    def model(location):
        entry = message(13, message(1, b"location") + message(2, location.encode()))
        return one_node("Add", 13, {}, [x], message(5, message(1, 2) + message(2, 1) + message(8, b"w") + entry + message(14, 1)))

    with tempfile.TemporaryDirectory() as top:
        given, out = os.path.join(top, "in.npz"), os.path.join(top, "out.npz")
        np.savez(given, x0=x)

        def run(path, right):
            done = model_run(path, given, out)
            if right:
                assert done.returncode == 0 and (np.load(out)["y"] == x + np.float32([10, 20])).all(), done
            else:
                assert done.returncode == 1 and "leads out of the model's folder" in done.stderr and "put the file itself there" in done.stderr, done

        write(os.path.join(top, "secret.bin"), secret)
        write(os.path.join(top, "modelled", "w.bin"), secret)  # its folder's name begins as the model's
        at = write(os.path.join(top, "model", "m.onnx"), model("w.bin"))
        for link, right in (("../secret.bin", False), ("../modelled/w.bin", False), (os.path.join(top, "secret.bin"), False), ("deep/own.bin", True)):
            write(os.path.join(top, "model", "deep", "own.bin"), secret)
            os.symlink(link, os.path.join(top, "model", "w.bin"))
            run(at, right)
            os.unlink(os.path.join(top, "model", "w.bin"))
        os.symlink("..", os.path.join(top, "model", "up"))
        run(write(os.path.join(top, "model", "n.onnx"), model("up/secret.bin")), False)
        # Of a model that is a link itself, what lies beside it is beside the file that it leads to: so are caches of hubs.
        write(os.path.join(top, "blobs", "1"), model("w.bin"))
        write(os.path.join(top, "blobs", "2"), secret)
        os.makedirs(os.path.join(top, "snapshots", "a"))
        os.symlink("../../blobs/1", os.path.join(top, "snapshots", "a", "m.onnx"))
        os.symlink("../../blobs/2", os.path.join(top, "snapshots", "a", "w.bin"))
        run(os.path.join(top, "snapshots", "a", "m.onnx"), True)


@test
def sizes_that_have_one_name_are_one_but_a_question_mark_is_no_name():
    with tempfile.TemporaryDirectory() as folder:
        model, given, out = (os.path.join(folder, f) for f in ("relu.onnx", "in.npz", "out.npz"))
        x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
        np.savez(given, x=x)
        for name, right in ((b"?", True), (b"side", False)):
            shape = message(2, message(1, message(2, name)) * 2)
            values = [message(1, v) + message(2, message(1, message(1, 1) + shape)) for v in (b"x", b"y")]
            graph = message(1, message(1, b"x") + message(2, b"y") + message(4, b"Relu")) + message(2, b"g") + message(11, values[0]) + message(12, values[1])
            with open(model, "wb") as f:
                f.write(message(1, 8) + message(7, graph) + message(8, message(2, 13)))
            run = model_run(model, given, out)
            assert (run.returncode == 0) == right, run.stderr
            assert (np.load(out)["y"] == np.maximum(x, 0)).all() if right else "side x side" in run.stderr, run.stderr


@test
def published_networks_give_what_onnxruntime_gives_whole_and_cut():
    """As their Python packages ship them, by content: $HP_PUBLISHED_ONNX is a folder into which their wheels were unpacked (golden-onnx/README.md says which)."""
    folder = os.environ.get("HP_PUBLISHED_ONNX", "")
    files = {f[:-5]: os.path.join(at, f) for at, _, names in os.walk(folder) for f in names if f.endswith(".onnx")} if folder else {}
    with open(golden("published.json")) as f:
        facts = json.load(f)
    if not files.keys() & facts.keys():
        skip("HP_PUBLISHED_ONNX names no folder with networks of published.json")
    known, compared = np.load(golden("published.npz")), 0
    with tempfile.TemporaryDirectory() as work:
        for name in sorted(files.keys() & facts.keys()):
            fact, given, out = facts[name], os.path.join(work, "in.npz"), os.path.join(work, "out.npz")
            with open(files[name], "rb") as f:
                assert hashlib.sha256(f.read()).hexdigest() == fact["sha256"], f"{files[name]} is another {name}"
            np.savez(given, **{fact["input"]: known[name + "/x"]})
            for options in ([], ["--stages", "3"]):
                got, expected = outputs_of(files[name], given, out, *options)[fact["output"]], known[name + "/y"]
                assert list(got.shape) == fact["shape"], (name, got.shape)
                # onnxruntime's sigmoid is 0 where it is less than 1e-7: a map of nothing but such values says nothing.
                off = np.abs(got.flatten()[::fact["every"]] - expected).max() / max(np.abs(expected).max(), 1e-2)
                assert off <= CLOSE, f"{name} {options}: {off} of the largest"
                print(f"# {name} {' '.join(options)}: {off:.1e} of the largest")
                compared += 1
    print(f"# {compared} runs of {len(files.keys() & facts.keys())} networks")


main()
