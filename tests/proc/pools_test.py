"""Pools: an ONNX model is applied, cut over two kinds of paced agents, and served under a deadline by the KServe protocol; agents die and come back under load."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import xml.dom.minidom

from cluster import BUILD, ROOT, SCALE, Cluster, Failed
from networks import MODELS, numpy, write
from tap import main, test

MODEL = "resnet-ts11"
BLOCK_S = 0.004


def files(folder, slo_s):
    """Kind X is measured for the first two blocks alone, Y for the others: every pipeline is X, then Y."""
    def node(name, kind):
        return {"name": name, "devices": [{"name": "d", "kind": kind, "memory_bytes": 1e9}], "nics": [{"name": "eth0", "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-4}]}

    def table(measured):
        seconds = [BLOCK_S, 1.2 * BLOCK_S, 1.6 * BLOCK_S]
        return {"share": [1], "batch": [1, 2, 4], "seconds": [seconds if measured else [None] * 3]}

    cluster = write(os.path.join(folder, "cluster.json"), {"format": "hp-cluster/1", "nodes": [node("x0", "X"), node("x1", "X"), node("y0", "Y")]})
    layers = [{"name": f"b{i}", "class": f"b{i}", "output_bytes": 4096} for i in range(4)]
    profile = write(os.path.join(folder, "profile.json"), {
        "format": "hp-profile/1", "model": MODEL, "layers": layers,
        "latency": {kind: {f"b{i}": table((i < 2) == (kind == "X")) for i in range(4)} for kind in ("X", "Y")}})
    workload = os.path.join(folder, "workload.yaml")
    with open(workload, "w") as f:
        f.write(f"""# one model
format: hp-workload/1
slo_margin: 0.4
max_stages: 2
models:
  - name: net
    model: {os.path.join(MODELS, MODEL, 'model.onnx')}
    profile: profile.json
    weight: 1
    slo_s: {slo_s}
""")
    return cluster, profile, workload


class Net:
    def __init__(self, c, np):
        self.np, self.base = np, c.http + "/v2"
        inputs, outputs = (np.load(os.path.join(MODELS, MODEL, f + ".npz")) for f in ("inputs", "expected"))
        self.cases = [(inputs[n + "/x"], outputs[n + "/y0"]) for n in sorted({k.split("/")[0] for k in inputs.keys()})]

    def ask(self, path, body=None, key=None):
        """(status, JSON, headers)"""
        headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + key} if key else {})}
        r = urllib.request.Request(self.base + path, None if body is None else json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(r, timeout=60 * SCALE) as a:
                return a.status, json.load(a), a.headers
        except urllib.error.HTTPError as e:
            return e.code, json.load(e), e.headers

    def post(self, body, model="net", key=None):
        return self.ask(f"/models/{model}/infer", body, key)[:2]

    def infer(self, x, key=None):
        return self.post({"inputs": [{"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.flatten().tolist()}]}, key=key)

    def right(self, x, expected):
        status, answer = self.infer(x)
        if status != 200:
            return status
        got = self.np.array(answer["outputs"][0]["data"], self.np.float32).reshape(answer["outputs"][0]["shape"])
        assert got.shape == expected.shape and abs(got - expected).max() <= 1e-4 * abs(expected).max(), (got, expected)
        return 200


def load(net, clients, each):
    """Statuses of all requests, which many clients ask one after the other."""
    statuses, lock = [], threading.Lock()

    def client(n):
        for i in range(each):
            status = net.right(*net.cases[(n + i) % len(net.cases)])
            with lock:
                statuses.append(status)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for t in threads:
        t.start()
    return statuses, threads


def keys_hold(c, net, x):
    """Keys that may use some models, so often and for so many samples; returns one that may use all."""
    made = {name: c.hpctl("key", "create", name, *limits)["key"] for name, *limits in (
        ("whole",), ("some", "--models", "net,other"), ("other", "--models", "other"), ("often", "--rpm", "2", "--models", "net"), ("spent", "--tokens", "5"))}
    assert net.infer(x)[0] == 401 and net.ask("/models/net")[0] == 401
    for key in ("whole", "some"):
        assert net.infer(x, made[key])[0] == 200, key
        for path, names in (("/repository/index", lambda a: [m["name"] for m in a]), ("/models/stats", lambda a: [m["name"] for m in a["model_stats"]])):
            status, told, _ = net.ask(path, {} if "index" in path else None, made[key])
            assert status == 200 and names(told) == ["net"], (path, told)
    # Another's model is neither listed nor told of, and says whose key may not use it.
    assert net.ask("/repository/index", {}, made["other"])[1] == [] and net.ask("/models/stats", None, made["other"])[1] == {"model_stats": []}
    for path, body in (("/models/net", None), ("/models/net/ready", None), ("/models/net/stats", None), ("/models/net/infer", {"inputs": []})):
        status, told, _ = net.ask(path, body, made["other"])
        assert status == 403 and '"net"' in told["error"] and '"other"' in told["error"], (path, status, told)
    # Requests and samples count; to look costs nothing.
    for _ in range(2):
        assert net.infer(x, made["often"])[0] == 200
        assert net.ask("/repository/index", {}, made["often"])[0] == 200
    status, told, headers = net.ask("/models/net/infer", {"inputs": []}, made["often"])
    assert status == 429 and "2 times a minute" in told["error"] and 1 <= int(headers["Retry-After"]) <= 60, (status, told)
    assert headers["x-ratelimit-remaining-requests"] == "0", headers
    two = net.np.concatenate([x[:1], x[:1]])
    for left in (3, 1):
        assert net.infer(two, made["spent"])[0] == 200
        assert next(k for k in c.hpctl("key", "ls") if k["name"] == "spent")["used"]["tokens_left"] == left
    status, told = net.infer(two, made["spent"])
    assert status == 429 and "1 are left" in told["error"], (status, told)
    assert net.infer(x[:1], made["spent"])[0] == 200 and net.infer(x[:1], made["spent"])[0] == 429
    return made["whole"]


def readiness_follows(c, net, key):
    """Without agents nothing is ready, and whoever has the key is told why; the server says so without names to those who have none."""
    assert net.ask("/health/ready")[:2] == (200, {}) and net.ask("/repository/index", {}, key)[1][0] == {"name": "net", "version": "1", "state": "READY", "reason": ""}
    for agent in c.local()["agents"]:
        c.kill(agent["name"])
    why = 'no plan serves "net" with the agents that there are'
    c.wait("nothing serves", lambda: net.ask("/models/net/ready", None, key)[:2] == (503, {"error": why}))
    assert net.ask("/repository/index", {}, key)[1] == [{"name": "net", "version": "1", "state": "LOADING", "reason": why}]
    assert net.ask("/repository/index", {"ready": True}, key)[1] == [] and len(net.ask("/repository/index", {"ready": False}, key)[1]) == 1
    assert net.ask("/repository/index", {"ready": 3}, key)[:2] == (400, {"error": "ready: must be true or false"})
    assert net.ask("/health/ready")[:2] == (503, {"error": "1 of 1 models are not ready"}) and net.ask("/health/live")[0] == 200
    assert net.infer(net.cases[0][0], key)[:2] == (503, {"error": why})


def triton(c, net, folder, python=sys.executable, env=None, key=None, grpc=None):
    """An unmodified tritonclient gets the known answers of what `net` serves, by HTTP or by gRPC at this address; False where there is none."""
    made, check = os.path.join(folder, "made.npz"), "triton_grpc_check.py" if grpc else "triton_check.py"
    run = subprocess.run([python, os.path.join(ROOT, "tests", "proc", check), grpc or c.http.split("//")[1], "net", os.path.join(MODELS, MODEL, "inputs.npz"), made, *([key] if key else [])],
                         env=env, capture_output=True, text=True, timeout=120 * SCALE)
    if run.returncode == 77:
        return False
    assert run.returncode == 0, run.stderr
    with net.np.load(made) as got, net.np.load(os.path.join(MODELS, MODEL, "expected.npz")) as expected:
        for n in got.files:
            assert abs(got[n] - expected[n]).max() <= 1e-4 * abs(expected[n]).max(), n
    return True


def drive(c, folder):
    """`hpctl load`: what arrives is answered and told stage by stage, what cannot be on time is refused by cause."""
    svg, trace, arrivals = (os.path.join(folder, f) for f in ("load.svg", "load.json", "arrivals.csv"))
    r = c.hpctl("load", "net", "--arrivals", "uniform", "--rate", "20", "--seconds", "1", "--svg", svg, "--trace", trace)
    assert r["requests"] == 20 and r["done"] + r["refused"] == 20 and r["done"] > 10 and r["failed"] == r["open"] == r["unsent"] == 0, r
    assert len(r["stages"]) == 2 and r["stages"][1]["computing_s"]["p50"] >= 2 * BLOCK_S - 1e-6 and r["planned_s"]["p50"] >= 4 * BLOCK_S, r
    assert r["models"][0]["name"] == "net" and r["in_time_at_coordinator"] <= r["done"] and r["end_to_end_s"]["p50"] >= r["computed_s"]["p50"] >= 4 * BLOCK_S, r
    assert xml.dom.minidom.parse(svg).getElementsByTagName("rect")
    with open(trace) as f:
        names = [e.get("name", "") for e in json.load(f)["traceEvents"] if e.get("ph") == "X"]
    assert sum(n.endswith(" waits") for n in names) == r["done"], names
    planned, measured = (sum(n.startswith("batch ") and n.endswith(", planned") == p for n in names) for p in (True, False))
    assert measured >= 2 and planned >= 2, (planned, measured)
    with open(arrivals, "w") as f:
        f.write("seconds,model\n0,net\n0.1,net\n0.2,net\n")
    assert c.hpctl("load", "--workload", "--arrivals", arrivals)["requests"] == 3
    r = c.hpctl("load", "--workload", "--rate", "5000", "--seconds", str(0.25 * SCALE))
    assert r["refused"] > 0 and r["done"] > 0 and r["failed"] == r["open"] == 0 and [x["cause"] for x in r["causes"]] == ["429 too late"], (r["causes"], r["done"], r["refused"])
    workload = os.path.join(folder, "workload.yaml")
    for args, code in ((("load", "net", "--rate", "1", "--ttft", "1s"), "usage"), (("load", "--rate", "1"), "usage"), (("load", "net"), "usage"),
                       (("plan", "diff", "-f", workload, "--method", "np"), "infeasible"), (("plan", "diff", "-f", workload, "--method", "milp"), "usage")):
        try:
            c.hpctl(*args)
            raise AssertionError(args)
        except Failed as e:
            assert e.code == code, (args, e)
    for args, hint in (("net --rate 1 --arrivals often", "it is poisson, uniform, bursty or a CSV file"), ("nobody --rate 1", "`hpctl pools` what pools serve")):
        failed = c.run("load", *args.split())
        assert failed.returncode == 4 and hint in failed.stderr, failed.stderr


def who_would_talk_is_told(c):
    """A network takes no texts, and is no deployment: who takes it for one hears where it is asked."""
    for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello!"}]}), ("/v1/embeddings", {"input": "a"})):
        status, told = c.request("POST", path, {"model": "net", **body})
        assert status == 404 and '"net" is a network that pools serve' in told["error"]["message"] and "/v2/models/net/infer" in told["error"]["message"], (path, status, told)
        assert "pools" not in c.request("POST", path, {"model": "nobody", **body})[1]["error"]["message"]
    for verb, hint in (("run", "/v2/models/net/infer"), ("undeploy", "hpctl pools rm")):
        words = [verb, "net"] + ["Hello!"] * (verb == "run")
        failed = c.run(*words)
        assert failed.returncode and '"net"' in failed.stderr and "pools serve" in failed.stderr and hint in failed.stderr, failed.stderr
        assert "pools" not in c.run(verb, "nobody", *words[2:]).stderr


@test
def a_model_is_served_over_two_kinds_and_agents_may_die_under_load():
    np = numpy()
    with tempfile.TemporaryDirectory(prefix="hp-pools-") as folder:
        cluster, profile, workload = files(folder, 2 * SCALE)
        with Cluster(agents=3, cores=1, pace=cluster, profile=profile) as c:
            new = c.hpctl("plan", "diff", "-f", workload)
            assert new["serves"] is None and new["why"] == ["nothing serves yet"] and [s["kind"] for s in new["next"]["models"][0]["pipelines"][0]["stages"]] == ["X", "Y"], new
            assert c.hpctl("pools")["state"] == "none"
            # Paced agents answer with their profile: without one in the file the plan is the same.
            told = c.hpctl("profile", "model", os.path.join(MODELS, MODEL, "model.onnx"))
            assert set(told["latency"]) == {"X", "Y"} and len(told["layers"]) == 4 and told["failed"] == [], told
            unprofiled = os.path.join(folder, "unprofiled.yaml")
            with open(workload) as f, open(unprofiled, "w") as out:
                out.writelines(line for line in f if "profile:" not in line)
            same = c.hpctl("plan", "diff", "-f", unprofiled)
            assert same["next"]["models"] == new["next"]["models"], same
            # No kind runs it alone, and both together take 16 ms and what is between them.
            tight = os.path.join(folder, "tight.yaml")
            with open(workload) as f, open(tight, "w") as out:
                out.write("".join("    slo_s: 0.02\n" if "slo_s" in line else line for line in f))
            try:
                c.hpctl("plan", "diff", "-f", tight)
                raise AssertionError("no plan meets that")
            except Failed as e:
                assert e.code == "infeasible" and "leaves 12 ms, and one request takes at least 16." in e.message and "ms (X, then Y)" in e.message, e
            told = c.hpctl("apply", "-f", workload)
            assert told["state"] in ("serving", "moving"), told
            more = os.path.join(folder, "more.yaml")
            with open(workload) as f, open(more, "w") as out:
                out.write(f.read().replace("weight: 1", "weight: 2"))
            people = c.run("plan", "diff", "-f", more).stdout
            assert "unchanged" in people and "why:\n  net: weight is 2, and was 1\n" in people and "the plan (exact)" in people and "whole models on single kinds" in people, people
            shares = {(s["on"].split("/")[0], s["stage"]) for s in told["current"]["shares"]}
            assert len(shares) == 3 and {stage for _, stage in shares} == {0, 1}, told["current"]["shares"]
            net = Net(c, np)
            for case in net.cases:
                assert net.right(*case) == 200
            x = net.cases[0][0]
            assert net.infer(x[:, :, :7])[0] == 400
            assert net.post({"inputs": []})[0] == 400
            head = json.dumps({"inputs": [{"name": "x", "shape": list(x.shape), "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}]}).encode()
            for kind, status in (("application/octet-stream", 200), ("text/plain", 415)):
                got = c.request("POST", "/v2/models/net/infer", head + x.tobytes(), {"Content-Type": kind, "Inference-Header-Content-Length": str(len(head))})
                assert got[0] == status, got
            assert net.post({"inputs": []}, "nobody")[0] == 404
            who_would_talk_is_told(c)
            with urllib.request.urlopen(net.base + "/models/net/ready") as r:
                assert r.status == 200
            with urllib.request.urlopen(net.base + "/models/net") as r:
                meta = json.load(r)
            assert meta["inputs"][0]["shape"][1:] == list(x.shape[1:]), meta
            drive(c, folder)
            # An agent dies under load: what was on it goes elsewhere, nobody hangs, and the plan follows.
            victim = next(s["on"] for s in told["current"]["shares"] if s["stage"] == 0).split("/")[0]
            statuses, threads = load(net, clients=6, each=40)
            c.wait("the load runs", lambda: len(statuses) > 30)
            c.kill(victim)
            for t in threads:
                t.join()
            assert set(statuses) <= {200, 429, 503}, set(statuses)
            assert statuses.count(200) > len(statuses) / 2, statuses
            two = c.wait("the plan follows", lambda: (lambda p: p["state"] == "serving" and len(p["current"]["shares"]) == 2 and p)(c.hpctl("pools")))
            assert two["lost_shares"] >= 1 and all(s["state"] == "ready" for s in two["current"]["shares"]), two
            assert net.right(*net.cases[0]) == 200
            # It comes back, and is used again, while requests go on.
            statuses, threads = load(net, clients=2, each=60)
            c.hpctl("local", "start", "--agent", victim)
            c.wait("the plan uses it", lambda: (lambda p: p["state"] == "serving" and len(p["current"]["shares"]) == 3)(c.hpctl("pools")))
            for t in threads:
                t.join()
            assert set(statuses) <= {200, 429} and statuses.count(200) >= 0.9 * len(statuses), statuses
            assert "ATTAINMENT" in c.run("pools").stdout
            told = c.hpctl("pools")["models"][0]
            assert told["failed"] <= 40 and told["on_time"] > 200, told
            # The coordinator starts again, and serves what was applied.
            c.kill("coordinator")
            c.hpctl("local", "start", "--coordinator")
            c.wait("it serves again", lambda: c.hpctl("pools")["state"] == "serving")
            assert net.right(*net.cases[0]) == 200
            key = keys_hold(c, net, x)
            if not triton(c, net, folder, os.environ.get("HP_TRITON_PYTHON", sys.executable), key=key):
                print("# without tritonclient (HP_TRITON_PYTHON names a python with tritonclient[http])")
            readiness_follows(c, net, key)
            c.hpctl("pools", "rm")
            assert net.infer(x, key)[0] == 404
            try:
                c.hpctl("pools", "rm")
                raise AssertionError("there was nothing to remove")
            except Failed as e:
                assert e.code == "not_found", e


ENCODER = "bert-ts17"


def encoder_files(folder, slo_s):
    """Two kinds, each measured for its half of the blocks alone, in lengths of 32 and 12."""
    def node(name, kind):
        return {"name": name, "devices": [{"name": "d", "kind": kind, "memory_bytes": 1e9}], "nics": [{"name": "eth0", "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-4}]}

    def profile(seconds, **more):
        def table(measured):
            return {"share": [1], "batch": [1, 2, 4], "seconds": [[seconds, 1.5 * seconds, 2.5 * seconds] if measured else [None] * 3]}

        return {"format": "hp-profile/1", "model": ENCODER, "layers": [{"name": f"b{i}", "class": f"b{i}", "output_bytes": 8192} for i in range(4)],
                "latency": {kind: {f"b{i}": table((i < 2) == (kind == "X")) for i in range(4)} for kind in ("X", "Y")}, **more}

    cluster = write(os.path.join(folder, "cluster.json"), {"format": "hp-cluster/1", "nodes": [node("x0", "X"), node("y0", "Y")]})
    both = write(os.path.join(folder, "profile.json"), profile(2 * BLOCK_S, length=32, lengths={"12": profile(BLOCK_S)}))
    workload = write(os.path.join(folder, "workload.json"), {
        "format": "hp-workload/1", "slo_margin": 0.4, "max_stages": 2,
        "models": [{"name": "bert", "model": os.path.join(MODELS, ENCODER, "model.onnx"), "profile": "profile.json", "weight": 1, "slo_s": slo_s, "lengths": {"buckets": [12, 32]}}]})
    return cluster, both, workload


def encoder_body(ids, mask):
    return {"inputs": [{"name": n, "shape": list(a.shape), "datatype": "INT64", "data": a.flatten().tolist()} for n, a in (("input_ids", ids), ("attention_mask", mask))]}


@test
def texts_of_any_length_are_padded_to_the_next_that_was_planned_and_get_what_they_get_unpadded():
    np = numpy()
    given, expected = (np.load(os.path.join(MODELS, ENCODER, f + ".npz")) for f in ("inputs", "expected"))
    with tempfile.TemporaryDirectory(prefix="hp-pools-") as folder:
        cluster, profile, workload = encoder_files(folder, 4 * SCALE)
        with Cluster(agents=2, cores=1, pace=cluster, profile=profile) as c:
            told = c.hpctl("apply", "-f", workload)
            assert [s["stage"] for s in told["current"]["shares"]] == [0, 1], told
            net = Net(c, np)
            meta = net.ask("/models/bert")[1]
            assert [i["shape"] for i in meta["inputs"]] == [[-1, -1]] * 2, meta

            def asked(ids, mask):
                status, answer = net.post(encoder_body(ids, mask), "bert")
                assert status == 200, answer
                return {o["name"]: np.array(o["data"], np.float32).reshape(o["shape"]) for o in answer["outputs"]}

            def right(case):
                got = asked(given[case + "/input_ids"], given[case + "/attention_mask"])
                for name, a in got.items():
                    e = expected[f"{case}/{name}"]
                    assert a.shape == e.shape and abs(a - e).max() <= 1e-4 * abs(e).max(), (case, name, a.shape)

            lengths = {n: given[n + "/input_ids"].shape[1] for n in ("b1", "b3", "other")}
            assert lengths == {"b1": 8, "b3": 10, "other": 20}, lengths  # none is one of the planned ones
            threads, failed = [], []

            def client(case):
                try:
                    for _ in range(6):
                        right(case)
                except BaseException as e:
                    failed.append(e)

            for case in lengths:  # several lengths at once, over the same shares
                right(case)
                threads.append(threading.Thread(target=client, args=(case,)))
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert not failed, failed[0]
            # Alone, a text gives to the last bits what it gives as a row that its client padded and masked.
            ids, mask = given["b3/input_ids"], given["b3/attention_mask"]
            n = int(mask[2].sum())
            whole, alone = asked(ids, mask), asked(ids[2:, :n], mask[2:, :n])
            assert n < ids.shape[1] and abs(whole["sentence_embedding"][2] - alone["sentence_embedding"][0]).max() <= 1e-6
            for body, says in ((encoder_body(np.ones((1, 33), int), np.ones((1, 33), int)), "up to 32"), (encoder_body(ids, mask[:, :9]), "shape[1] is 9")):
                status, answer = net.post(body, "bert")
                assert status == 400 and says in answer["error"], answer
            key = c.hpctl("key", "create", "k", "--tokens", "1000")["key"]
            assert net.post(encoder_body(ids, mask), "bert", key)[0] == 200
            assert next(k for k in c.hpctl("key", "ls") if k["name"] == "k")["used"]["tokens_left"] == 1000 - ids.size
            # What is wrong with lengths is said before anything is planned.
            def broken(wrong, says):
                with open(workload) as f:
                    document = json.load(f)
                document["models"][0]["lengths"] = wrong
                try:
                    c.hpctl("apply", "-f", write(os.path.join(folder, "wrong.json"), document))
                    raise AssertionError(wrong)
                except Failed as e:
                    assert says in e.message, (wrong, e)

            broken({"buckets": []}, "1 to 16")
            broken({"buckets": [12, 12]}, "twice")
            broken({"buckets": [0]}, "no length")
            broken({"buckets": [12, 32], "mask": "nothing"}, "nothing")
            broken({"buckets": [16, 32]}, "16")
            broken({"buckets": [12, 64]}, "32")


@test
def what_has_no_profile_is_measured_by_the_agents_once_and_who_interrupts_frees_them():
    np = numpy()
    model = os.path.join(MODELS, MODEL, "model.onnx")
    with tempfile.TemporaryDirectory(prefix="hp-pools-") as folder, Cluster(agents=2, cores=1) as c:
        # All sizes of batches on eight parts take long: it is interrupted once it is under way.
        batches = ",".join(str(i) for i in range(1, 33))
        long = subprocess.Popen([os.path.join(BUILD, "hpctl"), "profile", "model", model, "--batches", batches, "--shares", "1,2,3,4,5,6,7,8", "--budget", "3600"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=c.env)
        assert any("measures" in line for line in long.stderr), long.communicate()
        long.send_signal(signal.SIGINT)
        assert long.wait(60 * SCALE) in (130, -signal.SIGINT), long.communicate()
        long.stdout.close()
        long.stderr.close()

        def measured():
            try:
                return c.hpctl("profile", "model", model, "--agents", "all", "--batches", "1,2", "--budget", "1")
            except Failed as e:
                assert e.code == "busy", e
                return None
        told = c.wait("the agents are free", measured)
        kind, = told["latency"]
        assert {m["agent"] for m in told["measured"]} == {"a0", "a1"} and len(told["measured"]) == 4, told["measured"]
        assert min(abs(m["sum_error"]) for m in told["measured"]) <= 0.03, told["measured"]
        assert all(abs(m["sum_error"]) <= 0.06 for m in told["measured"] if m["spread"] <= 0.02), told["measured"]
        assert 1 < len(told["layers"]) <= 10 and told["bounds"][0] == 0 and len(told["bounds"]) == len(told["layers"]) + 1, told
        assert [row["kind"] for row in c.hpctl("profile", "ls")] == [kind]
        workload = os.path.join(folder, "workload.yaml")
        with open(workload, "w") as f:
            f.write("format: hp-workload/1\nslo_margin: 0.4\nmax_stages: 2\nmodels:\n"
                    f"  - name: net\n    model: {model}\n    weight: 1\n    slo_s: {2 * SCALE}\n"
                    f"  - name: other\n    model: {os.path.join(MODELS, 'vgg-ts11', 'model.onnx')}\n    weight: 1\n    slo_s: {2 * SCALE}\n")
        missing = os.path.join(folder, "missing.json")
        with open(missing, "w") as f:
            json.dump({"format": "hp-workload/1", "slo_margin": 0.4, "max_stages": 2, "models": [{"name": "net", "model": model, "profile": "nowhere.json", "weight": 1, "slo_s": 1}]}, f)
        try:
            c.hpctl("plan", "diff", "-f", missing)
            raise AssertionError("its profile is nowhere")
        except Failed as e:
            assert "nowhere.json" in e.message and "profile model" in e.hint and "without the key" in e.hint, (e.message, e.hint)
        told = c.hpctl("apply", "-f", workload)
        assert {s["layers"][1] for s in told["current"]["shares"]} and len(c.hpctl("profile", "ls")) == 2, told
        net = Net(c, np)
        for case in net.cases:
            assert net.right(*case) == 200
        try:
            c.hpctl("profile", "model", model)
            raise AssertionError("it would have disturbed what is served")
        except Failed as e:
            assert e.code == "busy", e
        c.hpctl("pools", "rm")


if __name__ == "__main__":
    main()
