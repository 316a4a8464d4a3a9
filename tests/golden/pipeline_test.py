"""hpctl plan pipeline: its plans judged by a flow written from the file formats alone, its figures, its errors."""
import copy
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import xml.dom.minidom

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import main, test

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
HPCTL = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "hpctl")
DATA = os.path.join(ROOT, "examples", "hpipe-testbed")
TMP = tempfile.mkdtemp(prefix="hp-pipeline-")


def run(*args, code=0):
    """Runs hpctl plan pipeline; gives the process and the processor seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    p = subprocess.run([HPCTL, "plan", "pipeline", *map(str, args)], capture_output=True, text=True, timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert p.returncode == code, f"exit {p.returncode}, expected {code}: {p.stderr}"
    return p, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def save(name, value):
    path = os.path.join(TMP, name)
    with open(path, "w") as f:
        json.dump(value, f)
    return path


def load(path):
    with open(path) as f:
        return json.load(f)


def published(model):
    return os.path.join(DATA, "testbed.cluster.json"), os.path.join(DATA, f"{model}.profile.json")


def make_plan(cluster, profile, *args):
    p, seconds = run("--cluster", cluster, "--profile", profile, *args, "-o", "json")
    return json.loads(p.stdout), seconds


# ---- the file formats, written down again ----------------------------------------------------------------------------------

def interval(axis, v):
    if len(axis) == 1:
        return 0, 0, 0.0
    i = 0
    while i + 2 < len(axis) and axis[i + 1] <= v:
        i += 1
    return i, i + 1, (v - axis[i]) / (axis[i + 1] - axis[i])


def table_at(t, x, y):
    i, i2, wx = interval(t["slice"], x)
    j, j2, wy = interval(t["prefix"], y)
    s = t["seconds"]
    return max(0.0, (1 - wx) * ((1 - wy) * s[i][j] + wy * s[i][j2]) + wx * ((1 - wy) * s[i2][j] + wy * s[i2][j2]))


def devices_of(cluster):
    found = {}
    for node in cluster["nodes"]:
        names = [node["name"]] if node.get("count", 1) == 1 else [f"{node['name']}-{k}" for k in range(node["count"])]
        for name in names:
            for d in node["devices"]:
                found[f"{name}/{d['name']}"] = (name, node, d)
    return found


def hop_of(cluster, a, b):
    found = devices_of(cluster)
    backwards = None
    for link in cluster.get("links", []):
        if (link["from"], link["to"]) == (a, b):
            return link["bandwidth_bytes_per_s"], link.get("latency_s", 0)
        if (link["from"], link["to"]) == (b, a):
            backwards = link["bandwidth_bytes_per_s"], link.get("latency_s", 0)
    if backwards:
        return backwards
    (name_a, node_a, dev_a), (name_b, node_b, dev_b) = found[a], found[b]
    if name_a == name_b:
        for link in node_a.get("peer_links", []):
            if set(link["between"]) == {dev_a["name"], dev_b["name"]}:
                return link["bandwidth_bytes_per_s"], link.get("latency_s", 0)
        return node_a["device_link"]["bandwidth_bytes_per_s"], node_a["device_link"].get("latency_s", 0)
    x, y = node_a["nics"][0], node_b["nics"][0]
    return min(x["bandwidth_bytes_per_s"], y["bandwidth_bytes_per_s"]), x.get("latency_s", 0) + y.get("latency_s", 0)


def judge(plan, cluster, profile, tokens, batch=None):
    """Makespan, energy and prompts per second of a plan with slices; asserts that it keeps all rules."""
    batch = batch or profile["batch"]
    found = devices_of(cluster)
    stages = plan["stages"]
    assert stages[0]["layers"][0] == 0 and stages[-1]["layers"][1] == len(profile["layers"])
    assert all(a["layers"][1] == b["layers"][0] for a, b in zip(stages, stages[1:]))
    assert len({s["device"] for s in stages}) == len(stages)
    assert sum(plan["slices"]) == tokens and all(s % plan["unit"] == 0 for s in plan["slices"][:-1])
    arrivals, period, computed = [0.0] * len(plan["slices"]), 0.0, []
    for j, stage in enumerate(stages):
        layers = profile["layers"][stage["layers"][0]:stage["layers"][1]]
        _, _, device = found[stage["device"]]
        need = sum(l["param_bytes"] + (l["state_bytes_per_token"] + l.get("activation_bytes_per_token", 0)) * tokens * batch for l in layers)
        assert need <= device["memory_bytes"] and abs(need - stage["memory_bytes"]) < 1
        free, wire_free, total, wire_total, prefix = 0.0, 0.0, 0.0, 0.0, 0
        for k, s in enumerate(plan["slices"]):
            scaled = s * batch / profile["batch"]
            t = sum(table_at(profile["latency"][device["kind"]][l["class"]], scaled, prefix + (s - scaled) / 2) for l in layers)
            free = max(free, arrivals[k]) + t
            total += t
            prefix += s
            if j + 1 < len(stages):
                speed, latency = hop_of(cluster, stage["device"], stages[j + 1]["device"])
                wire = layers[-1]["output_bytes_per_token"] * s * batch / speed
                wire_free = max(wire_free, free) + wire
                wire_total += wire
                arrivals[k] = wire_free + latency
        period = max(period, total, wire_total)
        computed.append((device, total))
        assert abs(total - stage["compute_s"]) < 1e-9 * total
    energy = sum(d.get("busy_w", 0) * t + d.get("idle_w", 0) * (free - t) for d, t in computed)
    return free, energy, 1 / period


def check_predictions(plan, cluster, profile, tokens, batch=None):
    makespan, energy, rate = judge(plan, cluster, profile, tokens, batch)
    said = plan["predicted"]
    for name, own in (("makespan_s", makespan), ("energy_j", energy), ("prompts_per_s", rate)):
        assert abs(said[name] - own) <= 1e-9 * own, (name, said[name], own)
    return makespan


# ---- figures ------------------------------------------------------------------------------------------------------------------

@test
def plans_on_the_published_testbed_reach_their_figures_and_are_timed_right():
    for model, method, least, most in (("llama-7b", "hpipe", 2.297, 2.343), ("llama-7b", "exact", 0, 2.115), ("gpt3-2b", "exact", 0, 1.53),
                                       ("llama-7b", "even", 19.08, 19.10), ("llama-7b", "terapipe", 7.07, 7.09), ("gpt3-2b", "hpipe", 0, 2)):
        cluster, profile = published(model)
        plan, seconds = make_plan(cluster, profile, "--tokens", 2048, "--unit", 16, "--method", method)
        makespan = check_predictions(plan, load(cluster), load(profile), 2048)
        print(f"# {model} {method}: {makespan:.4f} s, planned in {seconds:.2f} s of processor time")
        assert least <= makespan <= most
        assert seconds < 1
        if method == "exact":
            assert 0 < plan["solver"]["bound"] <= makespan and abs(plan["solver"]["gap"] - (makespan / plan["solver"]["bound"] - 1)) < 1e-9


@test
def objectives_and_other_batches_are_timed_right():
    cluster, profile = published("llama-7b")
    figures = {}
    for objective in ("latency", "throughput", "energy"):
        plan, _ = make_plan(cluster, profile, "--tokens", 1000, "--batch", 2, "--unit", 24, "--objective", objective)
        check_predictions(plan, load(cluster), load(profile), 1000, 2)
        figures[objective] = plan["predicted"]
    assert all(figures["throughput"]["prompts_per_s"] >= f["prompts_per_s"] * (1 - 1e-6) for f in figures.values())
    assert all(figures["energy"]["energy_j"] <= f["energy_j"] * (1 + 1e-6) for f in figures.values())
    assert all(figures["latency"]["makespan_s"] <= f["makespan_s"] * (1 + 1e-6) for f in figures.values())


@test
def why_names_the_devices_left_out_and_the_other_methods():
    cluster, profile = published("llama-7b")
    plan, _ = make_plan(cluster, profile, "--tokens", 2048)
    rows = {r["candidate"]: r for r in plan["why"]}
    assert "4 × P100 unused: with them " in rows["with all P100"]["reason"]
    assert abs(rows["hpipe"]["predicted"] / 2.319 - 1) < 0.01 and abs(rows["even (Base)"]["predicted"] / 19.09 - 1) < 0.01


def large(seed=3):
    """128 layers; 32 devices of 6 kinds on 8 nodes; three classes of network."""
    rng = random.Random(seed)
    kinds = {"A": (1.0, 16e9), "B": (2.2, 32e9), "C": (0.9, 16e9), "D": (4.0, 24e9), "E": (7.0, 80e9), "F": (2.0, 24e9)}
    slices, prefixes = [64, 256, 1024, 4096, 16384, 32768], [0, 1024, 8192, 32768]
    latency = {}
    for kind, (speed, _) in kinds.items():
        latency[kind] = {}
        for cls, (fixed, per, growth) in {"embed": (2e-5, 0, 0), "attn": (0.012, 6e-6, 3e-9), "mlp": (0.024, 1.2e-5, 0), "head": (0.015, 0, 0)}.items():
            latency[kind][cls] = {"slice": slices, "prefix": prefixes,
                                  "seconds": [[(fixed + per * x + growth * (2 * x * p + x * x)) / speed + 5e-5 for p in prefixes] for x in slices]}
    layers = [{"name": "embed", "class": "embed", "param_bytes": 5e8, "state_bytes_per_token": 0, "output_bytes_per_token": 16384}]
    for i in range(63):
        layers.append({"name": f"{i}a", "class": "attn", "param_bytes": 3e8, "state_bytes_per_token": 4096, "output_bytes_per_token": 16384})
        layers.append({"name": f"{i}m", "class": "mlp", "param_bytes": 7e8, "state_bytes_per_token": 0, "output_bytes_per_token": 16384})
    layers.append({"name": "head", "class": "head", "param_bytes": 5e8, "state_bytes_per_token": 0, "output_bytes_per_token": 4})
    names = [k for k in kinds for _ in range(5)] + ["A", "F"]
    rng.shuffle(names)
    nodes = [{"name": f"n{n}", "devices": [{"name": f"gpu{g}", "kind": names[4 * n + g], "memory_bytes": kinds[names[4 * n + g]][1], "busy_w": 250}
                                           for g in range(4)],
              "device_link": {"bandwidth_bytes_per_s": 1.1e10, "latency_s": 2e-5},
              "nics": [{"name": "e", "bandwidth_bytes_per_s": [1.25e9, 3e9, 1.25e8][n % 3], "latency_s": 3e-5}]} for n in range(8)]
    return {"format": "hp-cluster/1", "nodes": nodes}, {"format": "hp-profile/1", "batch": 1, "layers": layers, "latency": latency}


@test
def a_large_cluster_is_planned_in_ten_seconds_with_its_gap():
    cluster, profile = large()
    assert len(profile["layers"]) == 128
    plan, seconds = make_plan(save("large.cluster.json", cluster), save("large.profile.json", profile), "--tokens", 32768, "--unit", 64)
    makespan = check_predictions(plan, cluster, profile, 32768)
    why = {r["candidate"]: r["predicted"] for r in plan["why"]}
    print(f"# {makespan:.3f} s on {len(plan['stages'])} devices, gap {plan['solver']['gap']:.2f}, HPipe {why['hpipe']}, "
          f"planned in {seconds:.1f} s of processor time")
    assert seconds < 10
    assert plan["solver"]["bound"] > 0
    assert why["hpipe"] is None or makespan < why["hpipe"]


@test
def plan_check_agrees_with_every_method_and_catches_a_changed_plan():
    cluster, profile = published("gpt3-2b")
    files = "--cluster", cluster, "--profile", profile, "--tokens", "1500"

    def check(plan):
        return subprocess.run([HPCTL, "plan", "check", save("checked.json", plan), *files, "-o", "json"], capture_output=True, text=True)

    for method in ("exact", "hpipe", "even", "gpipe", "terapipe", "tp"):
        plan, _ = make_plan(cluster, profile, "--tokens", 1500, "--method", method)
        p = check(plan)
        assert p.returncode == 0, p.stderr
        assert abs(json.loads(p.stdout)["makespan_s"] - plan["predicted"]["makespan_s"]) < 1e-9
    plan["predicted"]["makespan_s"] *= 0.9
    assert check(plan).returncode != 0


# ---- sameness -----------------------------------------------------------------------------------------------------------------

def without_seconds(plan):
    plan = copy.deepcopy(plan)
    del plan["solver"]["seconds"]
    return plan


@test
def fewer_bytes_on_the_wire_are_planned_and_checked_as_such():
    cluster, profile = published("gpt3-2b")
    narrow = load(profile)
    for layer in narrow["layers"]:
        layer["output_bytes_per_token"] *= 72 / 256
    base = make_plan(cluster, profile, "--tokens", 2048)[0]
    plan = make_plan(cluster, profile, "--tokens", 2048, "--wire", "q8")[0]
    same = make_plan(cluster, save("narrow.json", narrow), "--tokens", 2048)[0]
    assert plan["wire"] == "q8" and "wire" not in base
    assert plan["slices"] == same["slices"] and plan["stages"] == same["stages"], (plan, same)
    assert plan["predicted"] == same["predicted"] != base["predicted"], (plan["predicted"], same["predicted"])
    files = ("--cluster", cluster, "--profile", profile, "--tokens", "2048")
    done = subprocess.run([HPCTL, "plan", "check", save("wire.json", plan), *files, "-o", "json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    del plan["wire"]
    done = subprocess.run([HPCTL, "plan", "check", save("wire.json", plan), *files, "-o", "json"], capture_output=True, text=True)
    assert done.returncode != 0, done.stdout  # its times are those of q8
    p, _ = run("--cluster", cluster, "--profile", profile, "--tokens", 2048, "--wire", "int8", code=2)
    assert "f32, f16, bf16 or q8" in p.stderr, p.stderr


@test
def planning_is_deterministic_for_a_seed():
    cluster, profile = published("gpt3-2b")
    for seed in (0, 5):
        a, _ = make_plan(cluster, profile, "--tokens", 2048, "--seed", seed)
        b, _ = make_plan(cluster, profile, "--tokens", 2048, "--seed", seed)
        assert without_seconds(a) == without_seconds(b)


@test
def exact_does_not_depend_on_the_order_of_nodes():
    path, profile = published("gpt3-2b")
    cluster = load(path)
    plan, _ = make_plan(path, profile, "--tokens", 2048)
    cluster["nodes"].reverse()
    for node in cluster["nodes"]:
        node["devices"].reverse()
    other, _ = make_plan(save("reversed.json", cluster), profile, "--tokens", 2048)
    assert plan["stages"] == other["stages"] and plan["slices"] == other["slices"] and plan["predicted"] == other["predicted"]


# ---- pictures -----------------------------------------------------------------------------------------------------------------

@test
def table_time_line_and_pictures_show_every_stage():
    cluster, profile = published("gpt3-2b")
    svg, trace, out = (os.path.join(TMP, f) for f in ("a.svg", "a.trace", "a.plan.json"))
    p, _ = run("--cluster", cluster, "--profile", profile, "--tokens", 2048, "--method", "hpipe", "--svg", svg, "--trace", trace, "-o", out)
    plan = load(out)
    assert {i["name"] for i in plan["inputs"]} == {"testbed.cluster.json", "gpt3-2b.profile.json"} and all(len(i["sha256"]) == 64 for i in plan["inputs"])
    for stage in plan["stages"]:
        assert p.stdout.count(stage["device"]) >= 2
    xml.dom.minidom.parse(svg)
    events = [e for e in load(trace)["traceEvents"] if e["ph"] == "X"]
    pieces = len(plan["slices"]) * (2 * len(plan["stages"]) - 1)
    assert len(events) == pieces
    end = max(e["ts"] + e["dur"] for e in events)
    assert abs(end * 1e-6 - plan["predicted"]["makespan_s"]) < 1e-5


# ---- bad input -----------------------------------------------------------------------------------------------------------------

def tiny_cluster():
    return {"format": "hp-cluster/1", "nodes": [
        {"name": n, "devices": [{"name": "g0", "kind": "X", "memory_bytes": 1000}], "nics": [{"bandwidth_bytes_per_s": 100, "latency_s": 0.1}]}
        for n in ("a", "b")]}


def tiny_profile():
    return {"format": "hp-profile/1", "batch": 1,
            "layers": [{"class": "c", "param_bytes": 400, "state_bytes_per_token": 1, "output_bytes_per_token": 1} for _ in range(3)],
            "latency": {"X": {"c": {"slice": [1, 64], "prefix": [0, 64], "seconds": [[0.1, 0.1], [1, 2]]}}}}


def edited(value, path, new):
    value = copy.deepcopy(value)
    at = value
    for key in path[:-1]:
        at = at[key]
    if new is None:
        del at[path[-1]]
    else:
        at[path[-1]] = new
    return value


TABLE = ("latency", "X", "c")
BAD = [
    # file, place, new value, exit code, what the message has to say
    ("profile", TABLE + ("seconds", 0, 1), "null", 1, ["profile.json", "$.latency.X.c.seconds[0][1]", "hole"]),
    ("profile", TABLE + ("seconds", 0, 1), 0, 1, ["$.latency.X.c.seconds[0][1]", "0 is not a time"]),
    ("profile", TABLE + ("seconds", 1, 0), -0.5, 1, ["$.latency.X.c.seconds[1][0]", "-0.5"]),
    ("profile", TABLE + ("slice",), [64, 1], 1, ["$.latency.X.c.slice[1]", "does not rise"]),
    ("profile", TABLE + ("prefix",), [0, 0], 1, ["$.latency.X.c.prefix[1]", "does not rise"]),
    ("profile", TABLE + ("seconds",), [[1, 2]], 1, ["$.latency.X.c.seconds", "1 rows", "2 points"]),
    ("profile", TABLE, None, 1, ["$.latency.X", "has no \"c\""]),
    ("profile", ("layers",), [], 1, ["$.layers", "empty"]),
    ("profile", ("layers", 0, "param_bytes"), -1, 1, ["$.layers[0].param_bytes", "-1 is negative"]),
    ("profile", ("latency",), {"Y": tiny_profile()["latency"]["X"]}, 6, ["kind X"]),
    ("cluster", ("nodes", 0, "devices", 0, "memory_bytes"), -1, 1, ["cluster.json", "$.nodes[0].devices[0].memory_bytes", "-1 is negative"]),
    ("cluster", ("format",), "hp-cluster/9", 1, ["$.format", "hp-cluster/9"]),
    ("cluster", ("nodes", 1, "nics"), None, 6, ["no pipeline fits", "link"]),
    ("cluster", ("nodes",), [], 6, ["no devices"]),
]


@test
def bad_files_are_refused_with_file_place_and_value():
    for kind, path, new, code, says in BAD:
        cluster, profile = tiny_cluster(), tiny_profile()
        if kind == "profile":
            profile = edited(profile, path, new)
        else:
            cluster = edited(cluster, path, new)
        cluster_file, profile_file = save("cluster.json", cluster), save("profile.json", profile)
        if new == "null":
            with open(profile_file) as f:
                text = f.read()
            with open(profile_file, "w") as f:
                f.write(text.replace('"null"', "null"))
        p, _ = run("--cluster", cluster_file, "--profile", profile_file, "--tokens", 32, "-o", "json", code=code)
        error = json.loads(p.stdout)["error"]
        for word in says:
            assert word in error["message"], f"{path}: \"{word}\" is not in \"{error['message']}\""
            assert word in p.stderr


@test
def what_does_not_fit_is_infeasible_and_says_why():
    cluster, profile = tiny_cluster(), tiny_profile()
    for device in (cluster["nodes"][0]["devices"][0], cluster["nodes"][1]["devices"][0]):
        device["memory_bytes"] = 100
    files = "--cluster", save("cluster.json", cluster), "--profile", save("profile.json", profile)
    for method in ("exact", "hpipe", "even", "gpipe", "terapipe", "tp"):
        p, _ = run(*files, "--tokens", 32, "--method", method, code=6)
        assert "no device fits even the smallest layer" in p.stderr, p.stderr
    cluster["nodes"][0]["devices"][0]["memory_bytes"] = 500
    run("--cluster", save("cluster.json", cluster), *files[2:], "--tokens", 32, code=6)


@test
def a_context_beyond_the_profile_is_extrapolated_and_said_so():
    cluster = tiny_cluster()
    cluster["nodes"][0]["devices"][0]["memory_bytes"] = 1e6
    files = "--cluster", save("cluster.json", cluster), "--profile", save("profile.json", tiny_profile())
    plan, _ = make_plan(files[1], files[3], "--tokens", 64)
    assert "warnings" not in plan
    p, _ = run(*files, "--tokens", 128, "-o", "json")
    plan = json.loads(p.stdout)
    assert any("extrapolated" in w for w in plan["warnings"]) and "warning: times are extrapolated" in p.stderr
    check_predictions(plan, cluster, tiny_profile(), 128)


@test
def what_is_left_out_for_want_of_a_link_or_a_profile_is_told():
    cluster = tiny_cluster()
    for node in cluster["nodes"]:
        node["devices"][0]["memory_bytes"] = 1e6
        node["nics"] = []
    cluster["nodes"].append({"name": "c", "devices": [{"name": "g0", "kind": "Z", "memory_bytes": 1e6}], "nics": []})
    p, _ = run("--cluster", save("cluster.json", cluster), "--profile", save("profile.json", tiny_profile()), "--tokens", 32)
    assert "b/g0 is left out: it has no link" in p.stderr
    assert "1 × Z left out: the profile has no times for that kind" in p.stderr


@test
def one_way_and_asymmetric_links_are_kept_apart():
    cluster = tiny_cluster()
    for node in cluster["nodes"]:
        node["nics"] = []
        node["devices"][0]["memory_bytes"] = 1000
    cluster["links"] = [{"from": "a/g0", "to": "b/g0", "bandwidth_bytes_per_s": 0}, {"from": "b/g0", "to": "a/g0", "bandwidth_bytes_per_s": 100}]
    plan, _ = make_plan(save("cluster.json", cluster), save("profile.json", tiny_profile()), "--tokens", 32)
    assert [s["device"] for s in plan["stages"]] == ["b/g0", "a/g0"]


@test
def wrong_usage_is_told():
    for args, says in (((), "--cluster"), (("--cluster", "x"), "--profile"), (("--cluster", "x", "--profile", "y"), "--tokens"),
                       (("--cluster", "x", "--profile", "y", "--tokens", "0"), "at least 1"),
                       (("--cluster", "x", "--profile", "y", "--tokens", "8", "--unit", "0"), "--unit"),
                       (("--cluster", "x", "--profile", "y", "--tokens", "8", "--method", "best"), "best"),
                       (("--cluster", "x", "--profile", "y", "--tokens", "8", "--objective", "speed"), "speed")):
        p, _ = run(*args, code=2)
        assert says in p.stderr, p.stderr


main()
