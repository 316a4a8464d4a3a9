"""Pools among strangers: what one client sends wrong, or another operator applies meanwhile, is told to whom it concerns alone."""
import collections
import json
import os
import resource
import socket
import tempfile
import threading
import urllib.error
import urllib.request

from cluster import ROOT, SCALE, Cluster, Failed
from networks import MODELS, numpy, write
from tap import main, skip, test

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


@test
def whoever_balances_load_and_whoever_has_a_wrong_path_hear_of_pools():
    with Cluster(agents=1, cores=1) as c:
        assert c.request("GET", "/ready")[0] == 503 and c.request("GET", "/ready/toy")[0] == 404
        c.hpctl("apply", "-f", os.path.join(ROOT, "examples", "pools", "toy.workload.yaml"))
        for path in ("/ready", "/ready/toy"):
            assert c.request("GET", path) == (200, {"ready": True, "models": [{"id": "toy", "ready": True, "state": "serving", "why": ""}]}), path
        status, told = c.request("GET", "/v2/models")
        assert status == 404 and "POST /v2/repository/index, which lists the models" in json.dumps(told), told
        for none in ("1e30s", "0.0001ms"):  # no number of microseconds
            run = c.run("load", "toy", "--rate", "1", "--deadline", none)
            assert run.returncode == 2 and "out of range: 0.001ms to 1000000s" in run.stderr, run
        c.hpctl("key", "create", "one")
        assert c.request("GET", "/ready") == (200, {"ready": True})
        c.kill("a0")
        c.wait("nothing serves", lambda: c.request("GET", "/ready/toy")[0] == 503, 20)


@test
def a_workload_that_cannot_be_planned_yet_is_tried_again_and_says_so():
    with tempfile.TemporaryDirectory(prefix="hp-strangers-") as folder, Cluster(agents=1, cores=1) as c:
        model = {"name": "toy", "model": os.path.join(ROOT, "examples", "pools", "toy.onnx"), "weight": 1, "slo_s": 1e-6}
        try:
            c.hpctl("apply", "-f", write(os.path.join(folder, "w.json"), {"format": "hp-workload/1", "models": [model]}))
            raise AssertionError("a microsecond")
        except Failed as e:
            assert e.code == "infeasible", e
        told = c.run("pools").stdout
        assert "the last plan failed, and is tried again: toy: no pipeline meets its deadline" in told and "\n  raise its slo_s" in told, told
        c.hpctl("pools", "rm")
        assert c.hpctl("pools")["state"] == "none"


@test
def what_very_many_requests_held_at_once_is_given_back():
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 < files < 4096:
        skip(f"only {files} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    head = json.dumps({"inputs": [{"name": "x", "shape": [1, 3, 32, 32], "datatype": "FP32", "parameters": {"binary_data_size": 4 * 3 * 32 * 32}}]}).encode()
    body = head + bytes(4 * 3 * 32 * 32)
    with Cluster(agents=1, cores=1) as c:
        c.hpctl("apply", "-f", os.path.join(ROOT, "examples", "pools", "toy.workload.yaml"))

        def resident():
            with open(f"/proc/{c.pids()['coordinator']}/status") as f:
                return next(int(line.split()[1]) >> 10 for line in f if line.startswith("VmRSS:"))
        before, host = resident(), c.http.split("//")[1]
        request = (f"POST /v2/models/toy/infer HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n"
                   f"Inference-Header-Content-Length: {len(head)}\r\n\r\n").encode() + body
        open_ones = [socket.create_connection((host.split(":")[0], int(host.split(":")[1])), 60 * SCALE) for _ in range(1000)]
        for s in open_ones:
            s.sendall(request[:-1])
        for s in open_ones:
            s.sendall(request[-1:])
        statuses = collections.Counter(s.makefile("rb").readline().split()[1] for s in open_ones)
        assert set(statuses) <= {b"200", b"429"} and statuses[b"200"], statuses
        most = resident()
        for s in open_ones:
            s.close()
        assert most > before + 24, (before, most)
        c.wait(f"less than {before + (most - before) // 3} MiB, of {most} MiB", lambda: resident() < before + (most - before) // 3, 20)


if __name__ == "__main__":
    main()
