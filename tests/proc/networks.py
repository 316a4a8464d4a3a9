"""What tests of pools share: the golden ONNX models, numpy, and files of JSON."""
import json
import os

from cluster import ROOT
from tap import skip

MODELS = os.path.join(ROOT, "..", "shared", "golden-onnx", "models")


def numpy():
    """The module; skips where it or the models are not here."""
    try:
        import numpy
    except ImportError:
        skip("no numpy")
    if not os.path.isdir(MODELS):
        skip("no ../shared/golden-onnx")
    return numpy


def write(path, value):
    with open(path, "w") as f:
        json.dump(value, f)
    return path
