"""Pools among strangers: what one client sends wrong, or another operator applies meanwhile, is told to whom it concerns alone."""
import collections
import json
import os
import tempfile
import threading
import urllib.error
import urllib.request

from cluster import SCALE, Cluster
from networks import MODELS, numpy, write
from tap import main, test

TEXT, PICTURE = "bert-ts17", "resnet-ts11"
TYPES = {"float32": "FP32", "int64": "INT64"}


def workload(folder, net):
    """Both are served by the name "net"."""
    model = {"name": "net", "model": os.path.join(MODELS, net, "model.onnx"), "weight": 1, "slo_s": 5 * SCALE, **({"dims": {"s": 8}} if net == TEXT else {})}
    return write(os.path.join(folder, net + ".json"), {"format": "hp-workload/1", "slo_margin": 0.4, "max_stages": 1, "models": [model]})


def first_case(np, net):
    """Inputs and outputs of the model's first known case."""
    files = [np.load(os.path.join(MODELS, net, f + ".npz")) for f in ("inputs", "expected")]
    name = sorted(files[0].files)[0].split("/")[0] + "/"
    return tuple({k[len(name):]: f[k] for k in f.files if k.startswith(name)} for f in files)


class Asking:
    """Clients that ask one after the other; what they were told."""

    def __init__(self, c):
        self.url, self.told, self.stop, self.threads = c.http + "/v2/models/net/infer", collections.Counter(), threading.Event(), []

    def begin(self, who, inputs, expected, most=10**9):
        body = json.dumps({"inputs": [{"name": n, "shape": list(a.shape), "datatype": TYPES[str(a.dtype)], "data": a.flatten().tolist()} for n, a in inputs.items()]}).encode()

        def ask():
            for _ in range(most):
                if self.stop.is_set():
                    return
                self.told[(who, *self.once(body, expected))] += 1
        self.threads.append(threading.Thread(target=ask))
        self.threads[-1].start()

    def once(self, body, expected):
        """(status, why); a wrong answer is (200, "wrong")."""
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url, body, {"Content-Type": "application/json"}), timeout=60 * SCALE) as r:
                outputs = {o["name"]: o["data"] for o in json.load(r)["outputs"]}
        except urllib.error.HTTPError as e:
            return e.code, json.load(e)["error"]
        right = outputs.keys() == expected.keys() and all(len(outputs[n]) == e.size and abs(outputs[n] - e.flatten()).max() <= 1e-4 * abs(e).max() for n, e in expected.items())
        return 200, "" if right else "wrong"

    def end(self):
        for t in self.threads:
            t.join()
        return dict(self.told)


@test
def who_shares_a_batch_with_what_cannot_be_computed_does_not_hear_of_it():
    np = numpy()
    inputs, expected = first_case(np, TEXT)
    with tempfile.TemporaryDirectory(prefix="hp-strangers-") as folder, Cluster(agents=2, cores=1) as c:
        c.hpctl("apply", "-f", workload(folder, TEXT))
        asking = Asking(c)
        for _ in range(4):
            asking.begin("good", inputs, expected, 80)
        for _ in range(2):
            asking.begin("bad", {**inputs, "input_ids": np.full_like(inputs["input_ids"], 10**9)}, expected, 80)
        told = asking.end()
        assert told.pop(("good", 200, "")) == 320, told
        (who, status, why), n = told.popitem()
        assert (who, status, n) == ("bad", 400, 160) and "index 1000000000" in why and not told, (who, status, why, n, told)


@test
def requests_are_read_by_what_serves_whatever_is_applied_meanwhile():
    np = numpy()
    with tempfile.TemporaryDirectory(prefix="hp-strangers-") as folder, Cluster(agents=2, cores=1) as c:
        files = [workload(folder, net) for net in (TEXT, PICTURE)]
        c.hpctl("apply", "-f", files[0])
        c.hpctl("pools", "rm")
        c.wait("its agents are free", lambda: c.hpctl("pools")["state"] == "none")
        c.hpctl("apply", "-f", files[1])  # both are measured now
        asking = Asking(c)
        for net in (TEXT, PICTURE) * 2:
            asking.begin(net, *first_case(np, net))
        for i in range(6):
            c.hpctl("apply", "-f", files[i % 2])
        asking.stop.set()
        told = asking.end()
        assert told.pop((TEXT, 200, "")) > 0 and told.pop((PICTURE, 200, "")) > 0, told
        # Either it is not the model's input, or the model has changed since it was read.
        assert all(s == 400 and 'the model has no input "' in why or s == 503 and "another model since" in why for _, s, why in told), told


if __name__ == "__main__":
    main()
