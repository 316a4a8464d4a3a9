"""hpctl plan pools, plan check, simulate and profile split: plans judged by rules written from the file formats alone, the published figures, errors."""
import copy
import csv
import json
import math
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import xml.dom.minidom

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import main, skip, test

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
HPCTL = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "hpctl")
SHARED = os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared"))
DATA = os.path.join(SHARED, "data", "ppipe")
TMP = tempfile.mkdtemp(prefix="hp-pools-")
SLOW = float(os.environ.get("HP_TIME_SCALE", "1"))


def need_data():
    if not os.path.isdir(DATA):
        skip(f"{DATA} is not there; HP_SHARED names the folder that has data/")


def run(*args, code=0):
    """Runs hpctl; gives its output and the processor seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    p = subprocess.run([HPCTL, *map(str, args)], capture_output=True, text=True, timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert p.returncode == code, f"exit {p.returncode}, expected {code}: {p.stderr} {p.stdout[-300:]}"
    return p, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def answer(*args):
    p, seconds = run(*args, "-o", "json")
    return json.loads(p.stdout), seconds


def save(name, value):
    path = os.path.join(TMP, name)
    with open(path, "w") as f:
        if isinstance(value, str):
            f.write(value)
        else:
            json.dump(value, f)
    return path


def load(*path):
    with open(os.path.join(*path)) as f:
        return json.load(f)


def where(workload):
    """The cluster and workload arguments of a published workload."""
    cluster = workload[:-5].rsplit("_", 1)[1]
    return ["--cluster", os.path.join(DATA, "clusters", cluster + ".json"), "--workload", os.path.join(DATA, "workloads", workload)]


def reference():
    with open(os.path.join(DATA, "reference.csv")) as f:
        return list(csv.DictReader(f))


# ---- the file formats, written down again ----------------------------------------------------------------------------------

class Judge:
    def __init__(self, cluster, workload_path, workload=None, share=None, margin=None):
        self.cluster, self.workload = cluster, workload or load(workload_path)
        self.share = self.workload["share_devices_across_pipelines"] if share is None else share
        self.margin = self.workload["slo_margin"] if margin is None else margin
        self.kinds = {p["kind"]: p for p in cluster["pools"]}
        folder = os.path.dirname(workload_path)
        self.models = {m["name"]: (m, load(folder, m["profile"])) for m in self.workload["models"]}

    def compute(self, profile, kind, share, batch, layers):
        total = 0
        for i in range(*layers):
            table = profile["latency"][kind][profile["layers"][i]["class"]]
            v = table["seconds"][table["share"].index(share)][table["batch"].index(batch)]
            if v is None:
                return None
            total += v
        return total

    def rate(self, profile, stage, batch):
        kind, v, (i, j) = self.kinds[stage["kind"]], stage["share"], stage["layers"]
        nic = self.cluster["nic"]["bandwidth_bytes_per_s"]
        into = profile["layers"][i - 1]["output_bytes"] / nic if i else 1e-6
        out = profile["layers"][j - 1]["output_bytes"] / nic if j < len(profile["layers"]) else 1e-6
        g = kind["devices_per_node"]
        compute = self.compute(profile, stage["kind"], v, batch, (i, j))
        return min([batch / compute] + [1 / (s * v * g) for s in (into, out) if s > 0])

    def judge(self, plan):
        """The least throughput / weight; asserts every condition."""
        assert plan["format"] == "hp-plan/1" and plan["kind"] == "pools"
        devices = {k: 0 for k in self.kinds}
        least = math.inf
        assert {m["name"] for m in plan["models"]} == set(self.models)
        for model in plan["models"]:
            asked, profile = self.models[model["name"]]
            total, fractions = 0, {}
            for pipeline in model["pipelines"]:
                batch, stages = pipeline["batch"], pipeline["stages"]
                assert 1 <= len(stages) <= self.workload["max_stages"]
                assert stages[0]["layers"][0] == 0 and stages[-1]["layers"][1] == len(profile["layers"])
                seconds, rates = 0, []
                for d, s in enumerate(stages):
                    assert d == 0 or s["layers"][0] == stages[d - 1]["layers"][1]
                    assert s["share"] in self.workload["shares"][s["kind"]]
                    seconds += self.compute(profile, s["kind"], s["share"], batch, s["layers"])
                    if d + 1 < len(stages):
                        transfer = profile["layers"][s["layers"][1] - 1]["output_bytes"] / self.cluster["nic"]["bandwidth_bytes_per_s"]
                        seconds += batch * transfer
                        assert abs(s["transfer_s"] - transfer) < 1e-9
                    rates.append(s["count"] * self.rate(profile, s, batch))
                    if self.share:
                        fractions[s["kind"], d] = fractions.get((s["kind"], d), 0) + s["count"] / s["share"]
                    else:
                        devices[s["kind"]] += math.ceil(s["count"] / s["share"])
                if "batching" in asked:
                    seconds += asked["batching"]["factor"] * (batch - 1) / asked["batching"]["throughput_per_s"]
                margin = model.get("slo_margin", self.margin)
                assert seconds <= asked["slo_s"] * (1 - margin) * (1 + 1e-9), (model["name"], seconds, asked["slo_s"] * (1 - margin))
                assert abs(pipeline["throughput_per_s"] - min(rates)) <= 1e-6 * min(rates)
                total += min(rates)
            for (kind, _), v in fractions.items():
                devices[kind] += math.ceil(v - 1e-9)
            least = min(least, total / asked["weight"])
        for kind, used in devices.items():
            assert used <= self.kinds[kind]["count"], (kind, used)
        assert abs(plan["predicted"]["normalized_throughput_per_s"] - least) <= 1e-6 * least
        return least


def judge_of(workload, **kw):
    at = where(workload)
    return Judge(load(at[1]), at[3], **kw)


# ---- planning ----------------------------------------------------------------------------------------------------------------

@test
def whole_devices_serve_what_the_best_known_plans_do():
    need_data()
    for row in reference():
        plan, seconds = answer("plan", "pools", *where(row["workload"]), "--share-devices", "off")
        value = judge_of(row["workload"], share=False).judge(plan)
        assert value >= 0.999 * float(row["best_whole_devices"]), (row["workload"], value)
        assert seconds <= 0.05 * SLOW + 0.05, (row["workload"], seconds)  # 0.05 s for reading, writing and weighing the others
        assert plan["solver"]["method"] == "exact" and -1e-9 <= plan["solver"]["gap"] < 0.06
        assert len(plan["inputs"]) == 2 + len(plan["models"]) and len(plan["why"]) >= 2


@test
def shared_devices_serve_what_gurobi_plans():
    need_data()
    for row in reference():
        plan, seconds = answer("plan", "pools", *where(row["workload"]), "--share-devices", "on")
        value = judge_of(row["workload"], share=True).judge(plan)
        assert value >= 0.999 * float(row["ppipe_gurobi"]), (row["workload"], value, row["ppipe_gurobi"])
        assert seconds <= 1 * SLOW + 0.1, (row["workload"], seconds)
        upper = row["upper_bound_shared_devices"]
        assert not upper or value <= float(upper) * (1 + 1e-4)


@test
def np_is_the_published_one_and_dart_lies_between():
    need_data()
    for row in reference()[::3]:
        np, _ = answer("plan", "pools", *where(row["workload"]), "--method", "np")
        value = judge_of(row["workload"], share=False).judge(np)
        assert abs(value / float(row["no_partitioning"]) - 1) < 1e-4
        assert all(len(p["stages"]) == 1 and p["stages"][0]["share"] == 1 for m in np["models"] for p in m["pipelines"])
        dart, _ = answer("plan", "pools", *where(row["workload"]), "--method", "dart")
        chains = judge_of(row["workload"], share=False).judge(dart)
        assert value * (1 - 1e-9) <= chains <= float(row["best_whole_devices"]) * (1 + 1e-4)
        for m in dart["models"]:
            for p in m["pipelines"]:
                kinds = [s["kind"] for s in p["stages"]]
                assert len(kinds) == len(set(kinds)) <= 2 and len({s["count"] for s in p["stages"]}) == 1


def mixed(total, parts, name):
    """A cluster of several kinds with a published workload on it; gives the two files and the judge."""
    per_node = {"L4": 4, "T4": 2, "V100": 2, "P4": 1}
    cluster = {"format": "hp-cluster/1", "nic": {"bandwidth_bytes_per_s": 1.25e9, "latency_s": 0},
               "pools": [{"kind": k, "count": int(total * x), "devices_per_node": per_node[k]} for k, x in parts.items()]}
    workload = load(DATA, "workloads", name)
    workload["shares"] = {k: [1] if k == "P4" else [1, 2, 3, 4] for k in parts}
    for m in workload["models"]:
        m["profile"] = os.path.abspath(os.path.join(DATA, "workloads", m["profile"]))
    c, w = save("mixed.c.json", cluster), save("mixed.w.json", workload)
    return ["--cluster", c, "--workload", w], Judge(cluster, w)


@test
def three_and_four_kinds_are_planned_near_the_bound():
    need_data()
    three, four = {"L4": 0.1, "T4": 0.6, "V100": 0.3}, {"L4": 0.15, "T4": 0.35, "V100": 0.1, "P4": 0.4}
    for total, parts in ((1000, three), (100000, three), (1000, four), (100000, four)):
        for name in ("maf19_effnetb8-encnet-rtmdet_V100-T4.json", "ablation_convnext_L4-T4.json"):
            at, judge = mixed(total, parts, name)
            plan, seconds = answer("plan", "pools", *at)
            judge.judge(plan)
            assert plan["solver"]["gap"] <= 0.01, (total, len(parts), plan["solver"])
            assert seconds <= 2 * SLOW, seconds
            assert 0 < plan["solver"]["lp_seconds"] < plan["solver"]["seconds"]


@test
def the_published_programme_is_written_and_solved_within_its_time():
    need_data()
    lp = os.path.join(TMP, "x.lp")
    name = "maf19_color-googlenet-repvgg_L4-T4.json"
    p = subprocess.run([HPCTL, "plan", "pools", *where(name), "--method", "milp", "--time-limit", "2", "--lp", lp, "-o", "json"], capture_output=True,
                       text=True, timeout=60)
    assert p.returncode in (0, 7), p.stderr  # 7: nothing found in time
    with open(lp) as f:
        text = f.read()
    assert "max:" in text and "\nint " in text and "p_0_0_1_1_0_10" in text
    if shutil.which("lp_solve"):
        parsed = subprocess.run(["lp_solve", "-S1", "-parse_only", lp], capture_output=True, text=True)
        assert parsed.returncode == 0, parsed.stdout
    if p.returncode == 0:
        plan = json.loads(p.stdout)
        value = judge_of(name, share=False).judge(plan)
        assert value <= plan["solver"]["bound"] * (1 + 1e-6)


# ---- checking ----------------------------------------------------------------------------------------------------------------

@test
def published_plans_and_our_own_are_valid_and_spoiled_ones_are_not():
    need_data()
    for name in sorted(os.listdir(os.path.join(DATA, "reference_plans"))):
        run("plan", "check", os.path.join(DATA, "reference_plans", name), *where(name), "--share-devices", "on")
    name = "maf19_effnetb8-encnet-rtmdet_V100-T4.json"
    plan, _ = answer("plan", "pools", *where(name), "--share-devices", "off")
    report, _ = answer("plan", "check", save("plan.json", plan), *where(name))
    assert report["valid"] and abs(report["normalized_throughput_per_s"] / plan["predicted"]["normalized_throughput_per_s"] - 1) < 1e-9

    def spoil(says, change):
        bad = copy.deepcopy(plan)
        change(bad, bad["models"][0]["pipelines"][0], bad["models"][0]["pipelines"][0]["stages"][0])
        p = subprocess.run([HPCTL, "plan", "check", save("bad.json", bad), *where(name), "-o", "json"], capture_output=True, text=True)
        assert p.returncode == (1 if says.startswith("$") else 6), (says, p.returncode, p.stderr)
        assert says in json.loads(p.stdout)["error"]["message"], (says, p.stdout)

    spoil("the cluster has 75", lambda b, p, s: s.update(count=s["count"] + 60 * s["share"], kind="T4", devices=0))
    spoil("promises", lambda b, p, s: b["models"][0].update(throughput_per_s=1e6))
    spoil("promises", lambda b, p, s: p.update(throughput_per_s=1e6))
    spoil("promises", lambda b, p, s: b["predicted"].update(normalized_throughput_per_s=1e6))
    spoil("a batch of 100 was not profiled", lambda b, p, s: p.update(batch=100))
    spoil("does not allow 1/5", lambda b, p, s: s.update(share=5))
    spoil("has no H100", lambda b, p, s: s.update(kind="H100"))
    spoil("ends at layer", lambda b, p, s: p.update(stages=[dict(s, layers=[0, 5])]))
    spoil("the plan has no effnetb8", lambda b, p, s: b["models"].pop(0))
    spoil("$.models[0].pipelines[0].stages[0].layers", lambda b, p, s: s.update(layers=[1, 10]))
    late = subprocess.run([HPCTL, "plan", "check", save("plan.json", plan), *where(name), "--slo-margin", "0.8"], capture_output=True, text=True)
    assert late.returncode == 6 and "its deadline of" in late.stderr


# ---- simulating --------------------------------------------------------------------------------------------------------------

@test
def published_plans_reach_the_published_loads():
    need_data()
    with open(os.path.join(DATA, "reference_simulation.csv")) as f:
        rows = list(csv.DictReader(f))
    differences = []
    for name in sorted({r["workload"] for r in rows}):
        found, _ = answer("simulate", os.path.join(DATA, "reference_plans", name), *where(name), "--sweep", "--seconds", 30)
        loads = {m["name"]: 100 * m["max_load"] for m in found["models"]}
        differences += [abs(loads[r["model"]] - float(r["max_load_percent_at_99"])) for r in rows if r["workload"] == name]
    assert max(differences) <= 5 + 1e-6, differences
    assert sum(differences) / len(differences) <= 2


@test
def the_reactive_scheduler_is_clearly_worse():
    need_data()
    loads = {"reserving": [], "reactive": []}
    for model in ("encnet", "fcn", "wideresnet", "effnetb8"):
        name = f"ablation_{model}_L4-T4.json"
        plan, _ = answer("plan", "pools", *where(name))
        path = save("ablation.json", plan)
        for scheduler, found in loads.items():
            found.append(answer("simulate", path, *where(name), "--sweep", "--seconds", 10, "--scheduler", scheduler)[0]["max_load"])
    assert all(a > b for a, b in zip(loads["reserving"], loads["reactive"])), loads
    assert sum(loads["reserving"]) - sum(loads["reactive"]) > 0.1 * len(loads["reactive"]), loads


def simulated(name, plan, *words):
    return answer("simulate", plan, *where(name), *words)[0]


@test
def nothing_that_was_sent_is_late_and_noise_is_corrected():
    need_data()
    name = "maf19_effnetb8-encnet-rtmdet_L4-T4.json"
    plan = os.path.join(DATA, "reference_plans", name)
    for words in (["--load", 0.9], ["--load", 1.4], ["--arrivals", "bursty"], ["--arrivals", "uniform", "--rates", "weights"]):
        found = simulated(name, plan, "--seconds", 10, *words)
        for m in found["models"]:
            assert m["late"] == 0 and m["arrived"] == m["in_time"] + m["dropped"] > 1000
            assert m["latency_s"]["p999"] <= m["slo_s"] + 1e-9
        assert all(0 <= u <= 1 for u in found["utilization"].values())
    noise = ["--seconds", 10, "--load", 0.95, "--latency-noise", 0.05, "--network-jitter", 0.1]
    noisy, again = simulated(name, plan, *noise), simulated(name, plan, *noise)
    assert sum(m["late"] for m in noisy["models"]) > 0 and noisy["attainment"] > 0.95, noisy["attainment"]
    assert again["models"] == noisy["models"]


@test
def traces_keep_their_pace_or_are_stretched_to_a_load():
    need_data()
    name = "maf19_effnetb8-encnet-rtmdet_L4-T4.json"
    plan = os.path.join(DATA, "reference_plans", name)
    random.seed(3)
    times = sorted(random.uniform(0, 5) for _ in range(4000))
    models = [m["name"] for m in load(plan)["models"]]
    path = save("trace.csv", "seconds,model\n" + "".join(f"{t:.6f},{random.choice(models)}\n" for t in times))
    found = simulated(name, plan, "--arrivals", path)
    assert found["requests"] == 4000 and abs(found["load"] - 800 / sum(m["throughput_per_s"] for m in load(plan)["models"])) < 0.02
    assert abs(simulated(name, plan, "--arrivals", path, "--load", 0.5)["load"] - 0.5) < 1e-6
    assert simulated(name, plan, "--arrivals", path, "--model", models[0])["models"][1]["arrived"] == 0


@test
def pictures_and_tables_are_written():
    need_data()
    name = "maf19_apcnet-atss-gcnet_L4-P4.json"
    svg, table = os.path.join(TMP, "a.svg"), os.path.join(TMP, "a.csv")
    p, _ = run("plan", "pools", *where(name), "--svg", svg, "-o", os.path.join(TMP, "plan.json"))
    assert "least throughput / weight: 2482.33" in p.stdout
    xml.dom.minidom.parse(svg)
    for words in (["--sweep"], ["--load", "0.5"]):
        run("simulate", os.path.join(TMP, "plan.json"), *where(name), "--seconds", 3, *words, "--svg", svg, "--csv", table)
        xml.dom.minidom.parse(svg)
        with open(table) as f:
            rows = list(csv.DictReader(f))
        assert rows and {"model", "load", "attainment"} <= set(rows[0])
    for verb in (["plan", "pools"], ["plan", "check"], ["simulate"], ["profile", "split"]):
        p, _ = run(*verb, "--help")
        assert "examples:" in p.stdout and "hpctl " + " ".join(verb) in p.stdout


@test
def ten_million_requests_take_little_memory():
    need_data()
    name = "maf19_color-googlenet-repvgg_L4-P4.json"
    plan = os.path.join(DATA, "reference_plans", name)
    rate = sum(m["throughput_per_s"] for m in load(plan)["models"])
    p = subprocess.Popen([HPCTL, "simulate", plan, *where(name), "--load", "0.95", "--seconds", str(1.01e7 / rate / 0.95), "-o", "json"],
                         stdout=subprocess.PIPE, text=True)
    out = p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    assert status == 0
    found = json.loads(out)
    assert found["requests"] >= 1e7
    assert usage.ru_maxrss < 60000 * (8 if SLOW > 1 else 1), usage.ru_maxrss  # kB
    assert found["requests"] / (usage.ru_utime + usage.ru_stime) > 1.5e6 / SLOW, usage.ru_utime


# ---- the margin by simulation ------------------------------------------------------------------------------------------------

@test
def auto_serves_more_than_the_fixed_margin():
    need_data()
    row = next(r for r in reference() if r["workload"].startswith("maf19_centernet-convnext-dnl_L4-P4"))
    name, served = row["workload"], {}
    for margin in ("0.4", "auto"):
        plan, _ = answer("plan", "pools", *where(name), "--slo-margin", margin, *(["--time-limit", 4] if margin == "auto" else []))
        judge_of(name, share=False).judge(plan)
        weights = {m["name"]: m["weight"] for m in load(where(name)[3])["models"]}
        unit = min(m["throughput_per_s"] / weights[m["name"]] for m in plan["models"])
        found = simulated(name, save("auto.json", plan), "--sweep", "--together", "--rates", "weights", "--step", 0.01, "--seed", 4242)
        served[margin] = found["max_load"] * unit / float(row["ppipe_gurobi"])
        if margin == "auto":
            assert abs(plan["predicted"]["served_throughput_per_s"] / float(row["ppipe_gurobi"]) / served[margin] - 1) < 0.05
            run("plan", "check", os.path.join(TMP, "auto.json"), *where(name))
    assert served["auto"] > 1.1 * served["0.4"], served


# ---- bad input ---------------------------------------------------------------------------------------------------------------

@test
def bad_input_is_said_clearly():
    need_data()
    name = "maf19_effnetb8-encnet-rtmdet_V100-T4.json"
    at = where(name)
    workload = load(at[3])
    for m in workload["models"]:
        m["profile"] = os.path.abspath(os.path.join(DATA, "workloads", m["profile"]))

    def complains(code, says, *words):
        p = subprocess.run([HPCTL, *map(str, words)], capture_output=True, text=True, timeout=60)
        assert p.returncode == code, (says, p.returncode, p.stderr)
        assert says in p.stderr, (says, p.stderr)

    def with_workload(change):
        bad = copy.deepcopy(workload)
        change(bad)
        return ["--cluster", at[1], "--workload", save("bad.w.json", bad)]

    plan = ["plan", "pools"]
    complains(6, "no pipeline meets its deadline: 1 ms", *plan, *with_workload(lambda w: w["models"][1].update(slo_s=0.001)))
    complains(1, "$.models[0].weight: 0 is not above 0", *plan, *with_workload(lambda w: w["models"][0].update(weight=0)))
    complains(1, "$.models[0].weight: -1 is not above 0", *plan, *with_workload(lambda w: w["models"][0].update(weight=-1)))
    cluster = load(at[1])
    cluster["pools"][0]["kind"] = "H100"
    complains(1, "the cluster has H100, a kind that the profile of effnetb8", *plan, "--cluster", save("h.json", cluster), "--workload", at[3])
    complains(1, "gives shares of \"H100\"", *plan, *with_workload(lambda w: w["shares"].update(H100=[1])))
    tiny = load(at[1])
    for p in tiny["pools"]:
        p["count"] = 1
    complains(6, "too few devices", *plan, "--cluster", save("tiny.json", tiny), "--workload", at[3])
    complains(4, "nowhere.json", *plan, "--cluster", at[1], "--workload", "nowhere.json")
    complains(2, "needs --workload", *plan, "--cluster", at[1])
    complains(2, "--slo-margin: 1.5", *plan, *at, "--slo-margin", "1.5")
    good = os.path.join(DATA, "reference_plans", name)
    bad = load(good)
    bad["models"][0]["pipelines"][0]["batch"] = 9
    simulate = ["simulate"]
    complains(1, "a batch of 9 was not profiled", *simulate, save("b9.json", bad), *at)
    complains(2, "--load: 0 is out of range", *simulate, good, *at, "--load", "0")
    complains(2, "--load: -1 is out of range", *simulate, good, *at, "--load", "-1")
    complains(4, "no model \"x\"", *simulate, good, *at, "--model", "x")
    complains(4, "none.csv", *simulate, good, *at, "--arrivals", "none.csv")
    for text, says in (("0.2,encnet\n0.1,encnet\n", "line 2: is earlier than the line before"), ("-1,encnet\n", "line 1: is before the start"),
                       ("0.1\n", "line 1: names no model"), ("0.1,encnet\nx\n", "line 2: begins with no number"), ("", "has no request"),
                       ("0.1,unheard\n", "has no model \"unheard\"")):
        complains(1, says, *simulate, good, *at, "--arrivals", save("bad.csv", text))
    complains(1, "is a profile by slice and prefix", "profile", "split", os.path.join(SHARED, "data", "hpipe", "llama-7b.profile.json"))


try:
    main()
finally:
    shutil.rmtree(TMP, ignore_errors=True)
