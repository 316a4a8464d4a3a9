"""Pools: a network cut over two to four agents gives the bits that it gives whole, wherever it is cut; and a share computes with all cores that it has."""
# Waits: agents that stand for others wait for the times that were planned; plans follow each other.
import json
import os
import subprocess
import tempfile
import urllib.request

from cluster import BUILD, SCALE, Cluster
from networks import MODELS, numpy, write
from tap import main, skip, test

BLOCK_S = 0.001
AGENTS = 4
LONG = "HP_ALL_CUTS" in os.environ  # more models, and every place for three and four agents, too


class Network:
    """A golden model, what it gives whole on one thread, and how it is asked."""

    def __init__(self, c, np, folder, model):
        self.c, self.np = c, np
        self.path, given = (os.path.join(MODELS, model, f) for f in ("model.onnx", "inputs.npz"))
        whole = os.path.join(folder, "whole.npz")
        subprocess.run([os.path.join(BUILD, "hpctl"), "model", "run", self.path, "--input", given, "--case", "b3", "--threads", "1", "-o", whole],
                       check=True, capture_output=True, timeout=60 * SCALE)
        with np.load(given) as inputs, np.load(whole) as made:
            self.inputs = {k.split("/")[1]: inputs[k] for k in inputs.files if k.startswith("b3/")}
            self.whole = {k.split("/")[1]: made[k] for k in made.files}
        told = subprocess.run([os.path.join(BUILD, "hpctl"), "model", "describe", self.path, "-o", "json"], check=True, capture_output=True, text=True, timeout=60 * SCALE)
        # Sizes that the file leaves free, the batch apart, are those of the case.
        self.dims = {name: self.inputs[i["name"]].shape[d] for i in json.loads(told.stdout)["inputs"] for d, name in enumerate(i["shape"]) if d and isinstance(name, str)}

    def check(self, what):
        """Pools give the bits that it gives whole."""
        tensors = [{"name": n, "shape": list(a.shape), "datatype": {"f": "FP32", "i": "INT64"}[a.dtype.kind], "parameters": {"binary_data_size": a.nbytes}}
                   for n, a in self.inputs.items()]
        head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
        request = urllib.request.Request(self.c.http + "/v2/models/net/infer", head + b"".join(self.inputs[t["name"]].tobytes() for t in tensors), {
            "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))})
        with urllib.request.urlopen(request, timeout=60 * SCALE) as reply:
            at, body = int(reply.headers["Inference-Header-Content-Length"]), reply.read()
        for told in json.loads(body[:at])["outputs"]:
            wanted = self.whole[told["name"]]
            got = self.np.frombuffer(body[at:at + wanted.nbytes], wanted.dtype).reshape(told["shape"])
            at += wanted.nbytes
            assert self.np.array_equal(got, wanted), f"{what}: {told['name']} has other bits"


class Cuts(Network):
    """One network, again and again in other parts: agent i is measured for block i alone, and so gets it."""

    def __init__(self, c, np, folder, model):
        super().__init__(c, np, folder, model)
        self.folder = folder
        measured = c.hpctl("profile", "model", self.path, "--local", "--batches", "1", "--budget", "0.05", "--blocks", "64",
                           *(["--dim", ",".join(f"{name}={size}" for name, size in self.dims.items())] if self.dims else []))
        self.layers = measured["bounds"][-1]

    def apply(self, bounds):
        n = len(bounds) - 1

        def table(measured):
            return {"share": [1], "batch": [1, 2, 4], "seconds": [[BLOCK_S] * 3 if measured else [None] * 3]}
        write(os.path.join(self.folder, "cut.json"), {
            "format": "hp-profile/1", "model": "net", "bounds": bounds, "layers": [{"name": f"b{i}", "class": f"b{i}", "output_bytes": 64} for i in range(n)],
            "latency": {f"K{k}": {f"b{i}": table(i == k) for i in range(n)} for k in range(AGENTS)}})
        workload = write(os.path.join(self.folder, "workload.json"), {
            "format": "hp-workload/1", "slo_margin": 0.4, "max_stages": n,
            "models": [{"name": "net", "model": self.path, "profile": "cut.json", "weight": 1, "slo_s": 2 * SCALE, "dims": self.dims}]})
        shares = self.c.hpctl("apply", "-f", workload)["current"]["shares"]
        assert [(s["stage"], s["layers"]) for s in shares] == [(i, [i, i + 1]) for i in range(n)] and len({s["on"] for s in shares}) == n, shares


CHAIN, BRANCHES = "mobilenet_v3-ts17", ("fpn-ts13", "bert-ts17")  # with outputs that are there early; with two tensors wherever it is cut
MODELS_LONG = ("resnet-ts11", "mobilenet_v3-dy20", "shufflenet-ts11", "densenet-dy20", "convnext-ts17", "unet-dy18", "yolo-dy20", *BRANCHES)


def bounds_of(layers, thorough):
    """Two parts, cut in every place; three and four parts, the first of which ends in every place, or in a few. Not thorough: in a few places, all."""
    for parts in range(2, AGENTS + 1):
        every = range(1, layers - parts + 2)
        places = every if LONG or (thorough and parts == 2) else every[::layers // 3]
        for first in places:
            yield [0, first, *(first + i * (layers - first) // (parts - 1) for i in range(1, parts - 1)), layers]


def node(i):
    return {"name": f"k{i}", "devices": [{"name": "d", "kind": f"K{i}", "memory_bytes": 1e9}], "nics": [{"name": "eth0", "bandwidth_bytes_per_s": 1e10, "latency_s": 1e-5}]}


@test
def a_network_cut_anywhere_over_two_to_four_agents_gives_the_bits_that_it_gives_whole():
    np = numpy()
    with tempfile.TemporaryDirectory(prefix="hp-cuts-") as folder:
        cluster = write(os.path.join(folder, "cluster.json"), {"format": "hp-cluster/1", "nodes": [node(i) for i in range(AGENTS)]})
        table = {"share": [1], "batch": [1], "seconds": [[BLOCK_S]]}
        profile = write(os.path.join(folder, "profile.json"), {"format": "hp-profile/1", "model": "net", "layers": [{"name": "b", "class": "b", "output_bytes": 64}],
                                                               "latency": {f"K{i}": {"b": table} for i in range(AGENTS)}})
        with Cluster(agents=AGENTS, cores=1, pace=cluster, profile=profile) as c:
            for model in MODELS_LONG if LONG else (CHAIN, *BRANCHES):
                cuts = Cuts(c, np, folder, model)
                assert cuts.layers >= 10, cuts.layers
                done = 0
                for bounds in bounds_of(cuts.layers, model == CHAIN):
                    cuts.apply(bounds)
                    cuts.check(f"cut at {bounds[1:-1]}")
                    done += 1
                print(f"# {model}: {cuts.layers} layers, cut in {done} ways over two to four agents")
            c.hpctl("pools", "rm")


def helpers(pid):
    """Ticks of processor time of the threads that compute for shares, by thread."""
    ticks = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/stat") as f:
            name, _, rest = f.read().partition("(")[2].rpartition(")")
        if name == "hp-share":
            ticks[thread] = sum(int(n) for n in rest.split()[11:13])
    return ticks


@test
def a_share_computes_with_all_cores_that_it_has_and_gives_the_same_bits():
    np = numpy()
    if len(os.sched_getaffinity(0)) < 2:
        skip("one core")
    os.environ["HP_TEST_LEAST_WORK"] = "1"  # small models are cut for threads as large ones are
    with tempfile.TemporaryDirectory(prefix="hp-cuts-") as folder, Cluster(agents=1, cores=2) as c:
        net = Network(c, np, folder, "resnet-ts11")
        workload = write(os.path.join(folder, "workload.json"), {
            "format": "hp-workload/1", "models": [{"name": "net", "model": net.path, "profile": "profile.json", "weight": 1, "slo_s": 2 * SCALE}]})
        kind = c.hpctl("node", "describe", "a0")["devices"][0]["kind"]
        table = {"share": [1], "batch": [1, 2, 4], "seconds": [[BLOCK_S, BLOCK_S, BLOCK_S]]}
        write(os.path.join(folder, "profile.json"), {"format": "hp-profile/1", "model": "net", "layers": [{"name": "b", "class": "b", "output_bytes": 64}], "latency": {kind: {"b": table}}})
        c.hpctl("apply", "-f", workload)
        net.check("before")

        def both_work():
            net.check("two threads")
            ticks = helpers(c.pids()["a0"])
            return len(ticks) == 2 and min(ticks.values()) > 0 and ticks
        c.wait("both threads have computed", both_work)
        c.hpctl("pools", "rm")


if __name__ == "__main__":
    main()
