"""`hpctl model run` against known answers ($HP_GOLDEN_ONNX, by default ../shared/golden-onnx): whole ONNX models, whole and cut into stages; single
operators, opset by opset; malformed files, each of which has a reason; published networks, where they are."""
import concurrent.futures
import hashlib
import json
import os
import resource
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


def message(number, value):
    """A field of protobuf: a number, or bytes of less than 128."""
    return bytes([number << 3, value]) if isinstance(value, int) else bytes([number << 3 | 2, len(value)]) + value


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
