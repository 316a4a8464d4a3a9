"""Pools follow the load: two models share four paced agents, clients ask for one of them more than was planned, and the next plan gives it what the other does not need."""
# Waits: for requests that come in their time, to agents that stand for others.
import json
import os
import signal
import subprocess
import tempfile
import threading

from cluster import BUILD, SCALE, Cluster, Failed
from networks import MODELS, write
from tap import main, skip, test

BATCH_S = 0.2  # of one to four samples of either model
AGENTS = 4


def files(folder, margin):
    nodes = [{"name": f"k{i}", "devices": [{"name": "d", "kind": "K", "memory_bytes": 1e9}], "nics": [{"name": "eth0", "bandwidth_bytes_per_s": 1e10, "latency_s": 1e-5}]} for i in range(AGENTS)]
    profile = {"format": "hp-profile/1", "model": "net", "layers": [{"name": "b", "class": "b", "output_bytes": 64}],
               "latency": {"K": {"b": {"share": [1], "batch": [1, 4], "seconds": [[BATCH_S, BATCH_S]]}}}}
    models = [{"name": name, "model": os.path.join(MODELS, net, "model.onnx"), "profile": "profile.json", "weight": 1, "slo_s": 5 * BATCH_S}
              for name, net in (("much", "resnet-ts11"), ("little", "vgg-ts11"))]
    return (write(os.path.join(folder, "cluster.json"), {"format": "hp-cluster/1", "nodes": nodes}), write(os.path.join(folder, "profile.json"), profile),
            write(os.path.join(folder, "workload.json"), {"format": "hp-workload/1", "slo_margin": 0.3, "max_stages": 1, "replan_margin": margin, "models": models}))


@test
def the_plan_follows_what_clients_ask_for_and_says_why():
    if not os.path.isdir(MODELS):
        skip("no ../shared/golden-onnx")
    with tempfile.TemporaryDirectory(prefix="hp-mix-") as folder:
        cluster, profile, workload = files(folder, 0)  # never by itself
        with Cluster(agents=AGENTS, cores=1, pace=cluster, profile=profile) as c:
            c.hpctl("apply", "-f", workload)

            def planned():
                told = c.hpctl("pools")
                return {m["name"]: m["planned_per_s"] for m in told["models"]}, told["current"]["why"], told["models"][0]
            before, _, _ = planned()
            assert before["much"] == before["little"], before
            try:
                c.hpctl("plan", "diff", "--load")
                raise AssertionError("nothing was asked yet")
            except Failed as e:
                assert e.code == "not_found", e
            # Half as much again as was planned, for one model; the other is asked now and then.
            rate, seconds, reports = 1.4 * before["much"], 36, {}

            def load(name, per_s):
                reports[name] = c.hpctl("load", name, "--arrivals", "uniform", "--rate", str(per_s), "--seconds", str(seconds), timeout=200)
            threads = [threading.Thread(target=load, args=a) for a in (("much", rate), ("little", 1))]
            for t in threads:
                t.start()
            diff = c.wait("a window of load", lambda: asked(c), 30)
            assert diff["level"] < 0.85 and diff["next_level"] > 1.2 * diff["level"] and abs(diff["load"]["much"] / rate - 1) < 0.25, diff
            assert planned()[0] == before
            files(folder, 0.2)
            c.hpctl("apply", "-f", workload)
            c.wait("the plan follows", lambda: planned()[0]["much"] > 1.4 * before["much"], 30)
            after, why, row = planned()
            assert '"much" is asked for' in why and "times as much of it is served" in why, why
            # `describe` of a model says it, too, of its own shares alone.
            described = c.hpctl("describe", "much")
            assert described["current"]["why"] == why and [m["name"] for m in described["models"]] == ["much"], described
            assert {s["model"] for s in described["current"]["shares"]} == {"much"} and '"much" is asked for' in c.run("describe", "much").stdout, described
            try:
                c.hpctl("describe", "nobody")
                raise AssertionError("there is no such model")
            except Failed as e:
                assert e.code == "not_found" and "nobody" in str(e), e
            assert 0 < after["little"] < before["little"] and abs(row["weight"] / rate - 1) < 0.25, (after, row)
            for t in threads:
                t.join()
            assert all(r["failed"] == r["open"] == 0 for r in reports.values()), reports
            # What it had to refuse it refused before it followed.
            assert reports["much"]["done"] > 0.7 * reports["much"]["requests"], reports["much"]
            assert "ASKED/S" in c.run("pools").stdout
            # Applied again, the weights are those of the file.
            assert {m["name"]: m["planned_per_s"] for m in c.hpctl("apply", "-f", workload)["models"]} == before
            c.hpctl("pools", "rm")


@test
def what_somebody_else_takes_away_is_no_interruption():
    """Exit code 130 is of who was interrupted."""
    if not os.path.isdir(MODELS):
        skip("no ../shared/golden-onnx")
    with tempfile.TemporaryDirectory(prefix="hp-mix-") as folder:
        cluster, profile, workload = files(folder, 0)
        with Cluster(agents=AGENTS, cores=1, pace=cluster, profile=profile) as c:
            pids = [a["pid"] for a in c.local()["agents"]]
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)  # so that no share is ready
            waits = subprocess.Popen([os.path.join(BUILD, "hpctl"), "apply", "-f", workload, "-o", "json"], env=c.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            c.wait("it is applied and taken away", lambda: c.hpctl("pools", "rm") is not None)
            out = waits.communicate(timeout=60 * SCALE)[0]
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            error = json.loads(out)["error"]
            assert waits.returncode == 1 and error["code"] == "busy" and "removed" in error["message"], (waits.returncode, error)


def asked(c):
    try:
        told = c.hpctl("plan", "diff", "--load")
        return told if told["load"]["much"] > 20 else None
    except Failed as e:
        assert e.code in ("not_found", "busy"), e
        return None


if __name__ == "__main__":
    main()
