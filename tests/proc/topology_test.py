"""What a cluster finds out of itself: links between agents, costs of a model, and that the planners take both."""
# Alone: links and costs are measured.
import json
import os
import time
import subprocess
import tempfile
import xml.dom.minidom

from cluster import BUILD, Cluster, DEMO, Failed, SCALE
from tap import main, test


def path(c, name):
    return os.path.join(c.folder, name)


def read(file):
    with open(file) as f:
        return json.load(f)


@test
def links_between_all_pairs_are_measured_and_drawn():
    with Cluster(agents=3, cores=1) as c:
        names = ["a0", "a1", "a2"]

        def all_measured():
            links = {(l["from"], l["to"]): l for l in c.hpctl("topo")["links"] if "measured_s" in l}
            return links if len(links) == 6 else None
        links = c.wait("all pairs are measured", all_measured, 30)
        assert set(links) == {(f"{a}/cpu", f"{b}/cpu") for a in names for b in names if a != b}
        for l in links.values():
            assert 1e6 < l["bandwidth_bytes_per_s"] < 1e11 and 1e-7 < l["latency_s"] < 0.1, l
        table = c.run("topo").stdout
        assert "MEASURED" in table and "a2/cpu" in table, table
        assert c.run("topo", "--svg", path(c, "topo.svg")).returncode == 0
        svg = xml.dom.minidom.parse(path(c, "topo.svg"))
        text = "".join(t.firstChild.data for t in svg.getElementsByTagName("text"))
        assert all(n in text for n in names) and "B/s" in text, text


@test
def a_measured_profile_is_what_the_planner_reads():
    with Cluster(agents=2, cores=1) as c:
        profile, cluster, plan = path(c, "profile.json"), path(c, "cluster.json"), path(c, "plan.json")
        done = c.run("profile", "model", DEMO, "--budget", "1.5", "-o", profile)
        assert done.returncode == 0, done.stderr
        made = read(profile)
        kind = c.hpctl("node", "ls")[0]["kind"]
        assert made["format"] == "hp-profile/1" and len(made["layers"]) == 18
        assert set(made["latency"]) == {kind} and "oneDNN" in made["source"][kind]["libraries"], made["source"]
        attention = made["latency"][kind]["attn"]
        assert len(attention["slice"]) >= 4 and len(attention["prefix"]) >= 3 and len(attention["decode"]["batch"]) == 4
        assert 1 <= made["useful_slice"][kind]["tokens"] <= 512
        c.run("topo", "-o", cluster)
        done = c.run("plan", "pipeline", "--cluster", cluster, "--profile", profile, "--tokens", "1024", "-o", plan)
        assert done.returncode == 0, done.stderr
        assert read(plan)["predicted"]["makespan_s"] > 0
        # Deployments of this model plan with it: nothing is measured again.
        quick = c.hpctl("deploy", DEMO, "--name", "demo", "--agents", "a0,a1", timeout=60)
        assert quick["phase"] == "serving", quick
        try:
            c.hpctl("profile", DEMO, "--nodes", "a0", "--budget", "1")
            raise AssertionError("an agent that serves was measured")
        except Failed as e:
            assert "stages" in e.message, e.message


@test
def files_are_shown_as_live_clusters_are():
    gpu = {"name": "gpu0", "kind": "H100 <80>", "memory_bytes": 8e10, "usable": False, "why": "no backend", "bus": "pcie0", "pcie_generation": 1, "pcie_width": 16,
           "pcie_best_generation": 5, "pcie_best_width": 16, "nvlink_peers": ["gpu1"]}
    node = {"name": "n", "devices": [{"name": "cpu", "kind": "c", "memory_bytes": 1e10}, gpu], "buses": [{"name": "pcie0", "bandwidth_bytes_per_s": 6e10}],
            "nics": [{"name": "eth0", "bandwidth_bytes_per_s": 1e9}], "near": [{"nic": "eth0", "device": "gpu0", "share": "switch"}]}
    cluster = {"format": "hp-cluster/1", "nodes": [node, dict(node, name="m")], "links": [{"from": "n/cpu", "to": "m/cpu", "bandwidth_bytes_per_s": 1e9}]}
    with tempfile.TemporaryDirectory() as folder:
        file, svg = os.path.join(folder, "c.json"), os.path.join(folder, "c.svg")
        with open(file, "w") as f:
            json.dump(cluster, f)
        table = subprocess.run([os.path.join(BUILD, "hpctl"), "topo", "--cluster", file], capture_output=True, text=True).stdout
        assert "PCIe 1 x16 (best 5 x16)" in table and "not used: no backend" in table and "shares a switch with eth0" in table, table
        done = subprocess.run([os.path.join(BUILD, "hpctl"), "topo", "--cluster", file, "--svg", svg], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        texts = [t.firstChild.data for t in xml.dom.minidom.parse(svg).getElementsByTagName("text") if t.firstChild]
        assert "H100 <80>" in texts and "pcie0" in texts and any("1.0 GB/s" in t for t in texts), texts
        with open(file, "w") as f:
            json.dump({"format": "hp-cluster/1", "nodes": [{"name": "n"}]}, f)
        done = subprocess.run([os.path.join(BUILD, "hpctl"), "topo", "--cluster", file], capture_output=True, text=True)
        assert done.returncode == 1 and "devices" in done.stderr, done.stderr


@test
def a_graph_from_a_model_is_planned():
    with tempfile.TemporaryDirectory() as folder:
        graph = os.path.join(folder, "graph.json")
        for command in (["profile", "graph", DEMO, "--device", "cpu", "-o", graph], ["plan", "coldstart", "--graph", graph, "--time-limit", "2", "-o", os.path.join(folder, "plan.json")]):
            done = subprocess.run([os.path.join(BUILD, "hpctl"), *command], capture_output=True, text=True, timeout=120 * SCALE)
            assert done.returncode == 0, done.stderr
        nodes = read(graph)["nodes"]
        assert {n["kind"] for n in nodes} == {"param", "op"}
        assert all(n["exec_s"][0] > 0 for n in nodes if n["kind"] == "op")
        assert read(os.path.join(folder, "plan.json"))["predicted"]["latency_s"] > 0


@test
def links_are_measured_now_when_asked_for():
    with Cluster(agents=2, cores=1) as c:
        c.wait("the links were measured", lambda: len(c.hpctl("topo")["links"]) == 2 and all("measured_s" in l for l in c.hpctl("topo")["links"]), 20)
        before = [l["measured_s"] for l in c.hpctl("topo")["links"]]
        time.sleep(1.1)
        told = c.hpctl("topo", "--measure")
        doubted = [(d["from"], d["to"]) for d in told.get("doubted", [])]  # where no two results agree
        fresh = [l["measured_s"] > min(before) or (l["from"].split("/")[0], l["to"].split("/")[0]) in doubted for l in told["links"]]
        assert fresh == [True, True], (before, told["links"], doubted)


main()
