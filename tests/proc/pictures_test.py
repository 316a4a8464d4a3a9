"""Every picture that hpctl makes, opened in Chromium: texts do not lie upon each other, and leave neither the picture nor the box that they stand in."""
import json
import os
import subprocess
import tempfile

from browser import Browser, missing
from cluster import BUILD, DEMO, ROOT, SCALE, Cluster
from tap import main, skip, test

TESTBED = os.path.join(ROOT, "examples", "hpipe-testbed")
HPCTL = os.path.join(BUILD, "hpctl")


def hpctl(*args, env=None):
    done = subprocess.run([HPCTL, *map(str, args)], capture_output=True, text=True, timeout=180 * SCALE, env=env)
    assert done.returncode == 0, (args, done.stderr, done.stdout[-300:])
    return done.stdout


class Folder:
    def __init__(self, folder):
        self.folder = folder

    def __call__(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, value):
        with open(self(name), "w") as f:
            json.dump(value, f)
        return self(name)


def cluster_of(n, links=True):
    """Boxes with long names and many devices, as people have them."""
    nodes = [{"name": f"workstation-{i}-under-the-desk" if i % 2 else f"n{i}",
              "devices": [{"name": f"gpu{k}", "kind": "NVIDIA GeForce RTX 4090 Laptop GPU (24 GB)", "memory_bytes": 2.4e10, "bus": "pcie0", "usable": k == 0, "why": "no driver"} for k in range(1 + i % 3)],
              "buses": [{"name": "pcie0", "bandwidth_bytes_per_s": 1.2e10}], "nics": [{"name": "enp0s31f6-management", "bandwidth_bytes_per_s": 1.2e8 * (i + 1), "latency_s": 3e-5, "assumed": i == 1}]} for i in range(n)]
    pairs = [{"from": f"{a['name']}/gpu0", "to": f"{b['name']}/gpu0", "bandwidth_bytes_per_s": 1e8 * (i + 1), "latency_s": 6.25e-5} for i, a in enumerate(nodes) for b in nodes if a is not b]
    return {"format": "hp-cluster/1", "nodes": nodes, "links": pairs if links else []}


def pools_of(path):
    """A workload of three models on two kinds of device."""
    names = ["segmenter", "a-detector-with-a-long-name", "x"]
    for m, name in enumerate(names):
        seconds = lambda speed: [[speed * (m + 1) * s * b ** 0.8 for b in (1, 2, 4)] for s in (1, 2)]
        path.write(name + ".json", {"format": "hp-profile/1", "model": name, "layers": [{"name": f"b{i}", "class": f"b{i}", "output_bytes": 4e5 / (i + 1)} for i in range(4)],
                                    "latency": {kind: {f"b{i}": {"share": [1, 2], "batch": [1, 2, 4], "seconds": seconds(speed)} for i in range(4)} for kind, speed in (("L4", 1e-3), ("P4-with-a-long-name", 3e-3))}})
    return (path.write("pools.json", {"format": "hp-cluster/1", "pools": [{"kind": "L4", "count": 5, "devices_per_node": 1}, {"kind": "P4-with-a-long-name", "count": 15, "devices_per_node": 1}], "nic": {"bandwidth_bytes_per_s": 1.25e9, "latency_s": 0}}),
            path.write("work.json", {"format": "hp-workload/1", "models": [{"name": n, "profile": n + ".json", "weight": 1 / (m + 1), "slo_s": 0.08 * (m + 1)} for m, n in enumerate(names)],
                                     "slo_margin": 0.4, "max_stages": 2, "pipelines_per_assignment": 0, "shares": {"L4": [1, 2], "P4-with-a-long-name": [1]}, "share_devices_across_pipelines": False}))


def planned_pictures(path):
    testbed = ["--cluster", os.path.join(TESTBED, "testbed.cluster.json"), "--profile", os.path.join(TESTBED, "llama-7b.profile.json")]
    for n in (1, 2, 3, 6, 8, 11):
        hpctl("topo", "--cluster", path.write("c.json", cluster_of(n)), "--svg", path(f"topo-{n}.svg"))
    hpctl("topo", "--cluster", testbed[1], "--svg", path("topo-testbed.svg"))
    for method in ("exact", "gpipe"):
        hpctl("plan", "pipeline", *testbed, "--tokens", 1024, "--method", method, "--svg", path(f"pipeline-{method}.svg"), "--html", path(f"pipeline-{method}.html"))
    pools, work = pools_of(path)
    hpctl("plan", "pools", "--cluster", pools, "--workload", work, "-o", path("pools.plan.json"), "--svg", path("pools.svg"), "--html", path("pools.html"))
    simulated = ["simulate", path("pools.plan.json"), "--cluster", pools, "--workload", work, "--seconds", 3]
    hpctl(*simulated, "--svg", path("simulate.svg"))
    hpctl(*simulated, "--sweep", "--step", 0.1, "--svg", path("sweep.svg"))
    hpctl("profile", "graph", DEMO, "--device", "cpu", "-o", path("graph.json"))
    hpctl("plan", "coldstart", "--graph", path("graph.json"), "--evaluations", 500, "--svg", path("coldstart.svg"), "--html", path("coldstart.html"))


def live_pictures(path):
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1")
        c.answer("demo", "Tell me about the river and " + "the sea and " * 60)
        c.wait("its time line", lambda: c.hpctl("describe", "demo")["prefill"]["records"])
        hpctl("describe", "demo", "--svg", path("describe.svg"), env=c.env)
        hpctl("topo", "--svg", path("topo-live.svg"), env=c.env)
        hpctl("load", "demo", "--rate", 20, "--seconds", 1, "--answer-tokens", "4..8", "--svg", path("load.svg"), env=c.env)
        c.hpctl("undeploy", "demo")
        c.hpctl("apply", "-f", os.path.join(ROOT, "examples", "pools", "toy.workload.yaml"))
        hpctl("load", "--workload", "--rate", 20, "--seconds", 1, "--svg", path("load-pools.svg"), env=c.env)


BROKEN = """<svg xmlns="http://www.w3.org/2000/svg" width="300" height="120" font-size="12"><rect x="10" y="60" width="80" height="30" fill="none"/>
<text x="20" y="30">one upon</text><text x="40" y="32">the other</text><text x="280" y="20">too far right</text><text x="12" y="80">wider than its box</text></svg>"""


@test
def what_is_broken_is_found():
    if missing():
        skip(missing())
    with tempfile.TemporaryDirectory(prefix="hp-pictures-") as folder, Browser() as b:
        with open(os.path.join(folder, "broken.svg"), "w") as f:
            f.write(BROKEN)
        b.open("file://" + os.path.join(folder, "broken.svg"))
        found = b.text_faults()
        assert len(found) == 3 and all(any(word in fault for fault in found) for word in ("lie upon", "leaves the picture", "leaves its box")), found


@test
def texts_of_pictures_stay_where_they_belong():
    if missing():
        skip(missing())
    with tempfile.TemporaryDirectory(prefix="hp-pictures-") as folder:
        path = Folder(folder)
        planned_pictures(path)
        live_pictures(path)
        wrong = []
        with Browser(1280, 900) as b:
            for name in sorted(os.listdir(folder)):
                if not name.endswith((".svg", ".html")):
                    continue
                b.open("file://" + path(name))
                b.shot("picture-" + name)
                wrong += [f"{name}: {fault}" for fault in (b.faults() if name.endswith(".html") else b.text_faults())]
                texts = b.run("return document.querySelectorAll('svg text').length")
                assert texts > 3, f"{name} says nothing: {texts} texts"
                if name.endswith(".html"):
                    outside = b.run("return [...document.querySelectorAll('[src], [href], script, link, iframe, object')].length")
                    assert outside == 0, f"{name} is not whole by itself"
            complaints = b.console()
        assert not wrong, "\n".join(wrong)
        assert not complaints, complaints


main()
