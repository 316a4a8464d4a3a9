"""The ONNX project's own backend tests of the operators that we know, which the package `onnx` makes when asked: HP_ONNX_PYTHON names a python that has it, else it is
installed for the test where a package index gives it."""
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from tap import main, skip, test

HPCTL = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "hpctl")
SCALE = float(os.environ.get("HP_TIME_SCALE", "1"))
PACKAGES = ("onnx==1.23.2", "numpy==2.4.6")
WAYS = ([], ["--compute", "f32-reference"]) if "HP_ALL_CASES" in os.environ else ([],)  # the plain loops, too
LACKING = set()  # operators and opsets that were refused by name once
# The reference of ONNX takes the fraction of a size that scales do not make whole; onnxruntime and torch, and so we, the whole size.
OTHER_THAN_TORCH = {"test_resize_downsample_scales_linear_align_corners", "test_resize_downsample_scales_cubic_align_corners"}

# Runs in a python that has onnx: a folder for each data set of each node test, and what each is.
LAY = """
import json, os, sys
import numpy as np
from onnx.backend.test.loader import load_model_tests
out, cases = sys.argv[1], []
for case in load_model_tests(kind="node"):
    if case.model is None:
        continue
    graph = case.model.graph
    values = [*graph.input, *graph.output]
    if not all(v.type.HasField("tensor_type") and v.type.tensor_type.elem_type in (1, 2, 3, 5, 6, 7, 9, 11) for v in values):
        continue
    for k, (ins, outs) in enumerate(case.data_sets):
        at = os.path.join(out, f"{case.name}-{k}")
        os.mkdir(at)
        with open(os.path.join(at, "model.onnx"), "wb") as f:
            f.write(case.model.SerializeToString())
        np.savez(os.path.join(at, "in.npz"), **{v.name: np.asarray(a) for v, a in zip(graph.input, ins)})
        np.savez(os.path.join(at, "wanted.npz"), **{v.name: np.asarray(a) for v, a in zip(graph.output, outs)})
        cases.append({"name": case.name, "at": at, "operators": sorted({n.op_type for n in graph.node}), "rtol": case.rtol, "atol": case.atol,
                      "opset": max((o.version for o in case.model.opset_import if o.domain in ("", "ai.onnx")), default=0)})
with open(os.path.join(out, "cases.json"), "w") as f:
    json.dump(cases, f)
"""


def lay(folder):
    """All node tests as files, and what they are."""
    python, env = os.environ.get("HP_ONNX_PYTHON"), dict(os.environ)
    if not python:
        packages = os.path.join(folder, "packages")
        try:
            done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary", ":all:", "--retries", "0", "--timeout", "10",
                                   "--disable-pip-version-check", "--no-cache-dir", "--target", packages, *PACKAGES], capture_output=True, text=True, timeout=90 * SCALE)
        except subprocess.TimeoutExpired:
            skip("the package index did not give onnx within a minute and a half (HP_ONNX_PYTHON names a python that has it)")
        if done.returncode:
            skip("no package index gave onnx: " + (done.stderr.strip().splitlines() or [""])[-1][:200])
        python, env = sys.executable, {**env, "PYTHONPATH": packages}
    cases = os.path.join(folder, "cases")
    os.mkdir(cases)
    made = subprocess.run([python, "-W", "ignore", "-c", LAY, cases], env=env, capture_output=True, text=True, timeout=180 * SCALE)
    assert made.returncode == 0, made.stderr[-2000:]
    with open(os.path.join(cases, "cases.json")) as f:
        return json.load(f)


def is_close(got, wanted, case):
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return False
    if wanted.dtype.kind in "iub":
        return np.array_equal(got, wanted)
    with np.errstate(invalid="ignore"):
        off = np.abs(got.astype(np.float64) - wanted)
        return bool(np.all((off <= case["atol"] + case["rtol"] * np.abs(wanted)) | (got == wanted) | (np.isnan(got) & np.isnan(wanted))))


def wrong_with(case):
    """None: nothing; "lacking": it has operators or opsets that are not ours, or trains."""
    out = os.path.join(case["at"], "out.npz")
    if "training" in case["name"] or case["opset"] in LACKING or LACKING.intersection(case["operators"]):
        return "lacking"
    for options in WAYS:
        run = subprocess.run([HPCTL, "model", "run", os.path.join(case["at"], "model.onnx"), "--input", os.path.join(case["at"], "in.npz"), "-o", out, *options],
                             capture_output=True, text=True, timeout=60)
        if run.returncode != 0:
            operator, opset = re.search(r"operator (\w+) is not known", run.stderr), re.search(r"wants operators of opset|does not say of which opset", run.stderr)
            if not operator and not opset:
                return f"{case['name']} {options}: {run.stderr.strip()[:200]}"
            LACKING.add(operator.group(1) if operator else case["opset"])
            return "lacking"
        with np.load(out) as made, np.load(os.path.join(case["at"], "wanted.npz")) as wanted:
            for name in wanted.files:
                if not is_close(made[name], wanted[name], case):
                    return f"{case['name']} {options}: output {name}"
    return None


@test
def the_onnx_projects_own_tests_of_our_operators_pass():
    with tempfile.TemporaryDirectory(prefix="hp-onnx-") as folder:
        cases = lay(folder)
        assert len(cases) > 1000, len(cases)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(zip(cases, pool.map(wrong_with, cases)))
    passed = collections.Counter(op for case, wrong in found if wrong is None for op in case["operators"])
    wrong = [w for case, w in found if w not in (None, "lacking") and case["name"] not in OTHER_THAN_TORCH]
    n = sum(w is None for _, w in found)
    print(f"# {n} of {len(cases)} cases pass, of {len(passed)} operators; {sum(w == 'lacking' for _, w in found)} have operators or opsets that are not ours, or train")
    assert not wrong, "\n".join(wrong)
    assert n > 850 and len(passed) > 120, (n, len(passed))


if __name__ == "__main__":
    main()
