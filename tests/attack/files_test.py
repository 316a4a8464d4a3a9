"""Hostile files that an admin may be handed: clusters, profiles, plans, workloads, graphs, contexts, models of every family. Whoever reads one says what is wrong with it, within seconds and in
bounded memory; no program ends by a signal, and the coordinator and its agents serve on."""
import copy
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import BUILD, ROOT, Cluster, DEMO, Failed, SANITIZERS, SCALE
from tap import main, test

SEED = int(os.environ.get("HP_SEED", "20"))
CHANCE = random.Random(SEED)
TESTBED = os.path.join(ROOT, "examples", "hpipe-testbed")
SHARED = os.path.join(ROOT, "..", "shared")
SEEDS = os.path.join(ROOT, "tests", "fuzz", "corpus")
GIB = 1 << 30
SECONDS, MEMORY = 20, 6 * GIB
SANITIZED = "fuzz-obj" in BUILD or "san" in os.path.basename(BUILD)
HOSTILE = [None, True, -1, 0, 1, 1e-300, 1e300, -1e300, 2 ** 31, 2 ** 53, 2 ** 63 - 1, "", "\u001b[2J\r\n", "../../../../etc/passwd", "\u00e9" * 4000, "gpu0", [], {}, [[]], [{}] * 5000,
           {str(i): i for i in range(3000)}, [1e9] * 100]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def places(value, path=()):
    """Of every member of a document, the way to it."""
    found = [path] if path else []
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found += places(value[key], path + (key,))
    return found


def changed(document):
    """A copy of which one place says something else."""
    whole = copy.deepcopy(document)
    path = CHANCE.choice(places(whole))
    holder = whole
    for key in path[:-1]:
        holder = holder[key]
    at, how = path[-1], CHANCE.randrange(8)
    if how == 0:
        del holder[at]
    elif how == 1 and isinstance(holder, list):
        holder += [copy.deepcopy(holder[at])] * CHANCE.choice((1, 50))
    elif how == 2 and isinstance(holder[at], (int, float)) and not isinstance(holder[at], bool):
        holder[at] = holder[at] * CHANCE.choice((-1, 0, 1e-9, 1e9, 1e30))
    elif how == 3:
        other = whole
        for key in CHANCE.choice(places(whole)):
            other = other[key]
        holder[at] = copy.deepcopy(other)
    else:
        holder[at] = copy.deepcopy(CHANCE.choice(HOSTILE))
    return json.dumps(whole).encode()


def torn(content):
    """Bytes that are no document any more, or one of great depth or length."""
    at = CHANCE.randrange(1, max(2, len(content)))
    return CHANCE.choice((lambda: content[:at], lambda: b"", lambda: content[:at] + CHANCE.randbytes(8) + content[at:], lambda: b"[" * 200000, lambda: b'{"format":' * 50000,
                          lambda: content + content, lambda: content.replace(b'"', b"'", 9), lambda: b"\xff\xfe" + content, lambda: b'{"x": "' + b"a" * (30 << 20) + b'"}'))()


def mutants(content, n):
    document = json.loads(content)
    return [torn(content) if CHANCE.random() < 0.2 else changed(document) for _ in range(n)]


def limits():
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def survives(what, args, env=None):
    """hpctl ends by itself within seconds, with a documented code, and says something where that is not 0."""
    began = time.monotonic()
    try:
        done = subprocess.run([os.path.join(BUILD, "hpctl"), *args], env=env, capture_output=True, timeout=SECONDS * SCALE, preexec_fn=limits)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"seed {SEED}: {what}: hpctl {' '.join(args)} went on for {time.monotonic() - began:.0f} s")
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert 0 <= done.returncode < 20, f"seed {SEED}: {what}: hpctl {' '.join(args)} ended with {done.returncode}: {said[-600:]}"
    assert done.returncode == 0 or said.strip(), f"seed {SEED}: {what}: exit {done.returncode} without a word"
    assert not any(word in said for word in SANITIZERS), f"seed {SEED}: {what}: {said[-3000:]}"
    assert b"\x1b[2J" not in done.stdout + done.stderr, f"seed {SEED}: {what}: a file's escapes reach the terminal"
    return done.returncode


class Folder:
    """Files under names of their own; the last that was written stays where a test fails."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="hp-files-")
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            shutil.rmtree(self.path)
        else:
            print(f"# the files are in {self.path}")

    def write(self, name, content):
        path = os.path.join(self.path, name)
        with open(path, "wb") as f:
            f.write(content)
        return path


def feed(files, commands, n):
    """Each file of `files` in n hostile versions, to each command that names it; the others stay whole."""
    with Folder() as folder:
        whole = {name: folder.write(name, content) for name, content in files.items()}
        codes = {}
        for name, content in files.items():
            for i, hostile in enumerate(mutants(content, n)):
                folder.write(name, hostile)
                for command in commands:
                    args = [whole[w[1:-1]] if w[1:-1] in whole and w[0] == "{" else w for w in command]
                    if args != command and (whole[name] in args or name == "profile"):
                        code = survives(f"{name}, version {i}", args)
                        codes[code] = codes.get(code, 0) + 1
            folder.write(name, content)
        print(f"# exit codes: {codes}")


def made(*args):
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        subprocess.run([os.path.join(BUILD, "hpctl"), *args, "-o", f.name], check=True, capture_output=True, timeout=60 * SCALE)
        return read(f.name)


@test
def hostile_clusters_profiles_and_plans_of_pipelines():
    cluster, profile = os.path.join(TESTBED, "testbed.cluster.json"), os.path.join(TESTBED, "llama-7b.profile.json")
    files = {"cluster": read(cluster), "profile": read(profile),
             "plan": made("plan", "pipeline", "--cluster", cluster, "--profile", profile, "--tokens", "512", "--effort", "0.05", "--method", "gpipe")}
    both = ["--cluster", "{cluster}", "--profile", "{profile}", "--tokens", "512"]
    feed(files, [["plan", "pipeline", *both, "--method", "hpipe", "--effort", "0.05"], ["plan", "pipeline", *both, "--effort", "0.02"], ["plan", "check", "{plan}", *both],
                 ["topo", "--cluster", "{cluster}"]], 40)


@test
def hostile_workloads_and_plans_of_pools():
    document = json.loads(read(os.path.join(SEEDS, "workload", "two_models.json")))
    for model in document["workload"]["models"]:
        model["profile"] = "profile"
    files = {name: json.dumps(document[name]).encode() for name in ("cluster", "workload", "profile")}
    with Folder() as folder:
        whole = {name: folder.write(name, content) for name, content in files.items()}
        files["plan"] = made("plan", "pools", "--cluster", whole["cluster"], "--workload", whole["workload"], "--time-limit", "2")
    both = ["--cluster", "{cluster}", "--workload", "{workload}"]
    feed(files, [["plan", "pools", *both, "--time-limit", "1"], ["simulate", "{plan}", *both, "--load", "0.5"], ["plan", "check", "{plan}", *both]], 25)


@test
def hostile_graphs_of_cold_starts():
    for name in ("3_devices.json", "chain.json"):
        with Folder() as folder:
            files = {"graph": json.dumps(json.loads(read(os.path.join(SEEDS, "opgraph", name)))["graph"]).encode()}
            files["plan"] = made("plan", "coldstart", "--graph", folder.write("graph", files["graph"]), "--time-limit", "1")
        feed(files, [["plan", "coldstart", "--graph", "{graph}", "--time-limit", "1"], ["plan", "check", "{plan}", "--graph", "{graph}"]], 20)


def models():
    """GGUF files and folders of every family and format that is at hand."""
    found = [DEMO]
    for name in ("gpt2", "qwen2", "quantised", "llama3"):
        folder = os.path.join(SHARED, "golden", name)
        for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if entry.endswith(".gguf") or entry == "hf":
                found.append(os.path.join(folder, entry))
    return found


def header_end(content):
    """Where the tensors' bytes begin, near enough: flips before it change what a file says of itself."""
    return min(len(content), 400000)


def lie(content):
    """A model file that says something else of itself: bits, numbers and lengths of its head, or its end cut off."""
    out = bytearray(content)
    for _ in range(CHANCE.choice((1, 1, 2, 8))):
        at = CHANCE.randrange(header_end(content) - 8)
        how = CHANCE.randrange(5)
        if how == 0:
            out[at] ^= 1 << CHANCE.randrange(8)
        elif how == 1:
            out[at:at + 4] = CHANCE.choice((0, 1, 2 ** 31, 2 ** 32 - 1, 12, 14, 30)).to_bytes(4, "little")
        elif how == 2:
            out[at:at + 8] = CHANCE.choice((0, 1, 2 ** 63, 2 ** 64 - 1, 2 ** 40)).to_bytes(8, "little")
        elif how == 3:
            found = [i for i in (content.find(word, CHANCE.randrange(len(content) // 2)) for word in (b"blk.", b".weight", b"block_count", b"head_count", b"embedding_length", b"_k_m")) if i >= 0]
            if found:
                at = CHANCE.choice(found) + CHANCE.randrange(24)
                out[at] = CHANCE.randrange(256)
        else:
            out = out[:CHANCE.randrange(100, len(out))]
            break
        if len(out) < 1000:
            break
    return bytes(out)


def lying_folder(source, folder):
    """A copy of a Hugging Face folder one of whose files lies."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0o644)
    name = CHANCE.choice([n for n in sorted(os.listdir(folder)) if n != "README.md"])
    path = os.path.join(folder, name)
    content = read(path)
    if name.endswith(".json") and CHANCE.random() < 0.9:
        content = changed(json.loads(content))
    elif name.endswith(".safetensors") and CHANCE.random() < 0.7:
        size = int.from_bytes(content[:8], "little")
        head = changed(json.loads(content[8:8 + size]))
        content = len(head).to_bytes(8, "little") + head + content[8 + size:]
    else:
        content = lie(content)
    with open(path, "wb") as f:
        f.write(content)
    return name


def model_verbs(path):
    return (["model", "describe", path], ["model", "tokenize", path, "--text", "Hello, w\u00f6rld <s>"], ["model", "detokenize", path, "--ids", "0,1,2,300,4000000000"],
            ["model", "greedy", path, "--ids", "1,2,3", "--tokens", "3", "--threads", "1", "--stages", "2"])


@test
def lying_models_of_every_family():
    with Folder() as folder:
        codes = {}
        for model in models():
            for i in range(8):
                if os.path.isdir(model):
                    path = os.path.join(folder.path, "hf")
                    what = f"{model}, {lying_folder(model, path)}, version {i}"
                else:
                    path, what = folder.write("model.gguf", lie(read(model))), f"{model}, version {i}"
                for verb in model_verbs(path):
                    code = survives(what, verb)
                    codes[code] = codes.get(code, 0) + 1
        print(f"# exit codes: {codes}")


@test
def lying_models_are_deployed_or_refused_and_end_nobody():
    """What a reader lets pass goes the whole way: manifest, coordinator, agents, and a prompt."""
    with Cluster(agents=2, cores=1) as c, Folder() as folder:
        c.deploy("good", DEMO, "--agents", "a0,a1")
        whole = c.answer("good", "Hello!", max_tokens=20)
        pids = [c.local()["coordinator"]["pid"], *(a["pid"] for a in c.local()["agents"])]
        served, refused = 0, 0
        for model in models():
            for i in range(3):
                if os.path.isdir(model):
                    path = os.path.join(folder.path, "hf")
                    what = lying_folder(model, path)
                else:
                    path, what = folder.write("model.gguf", lie(read(model))), "head"
                try:
                    c.hpctl("deploy", path, "--name", "liar", "--agents", "a0,a1", timeout=60)
                    status, body = c.request("POST", "/v1/completions", {"model": "liar", "prompt": "Once upon", "max_tokens": 4}, timeout=60)
                    assert status == 200 or body["error"]["message"], (model, what, status, body)
                    served += 1
                except Failed as e:
                    assert e.message and e.code != "bug", (model, what, e)
                    refused += 1
                for pid in pids:
                    assert os.path.exists(f"/proc/{pid}"), f"seed {SEED}: {model}, {what}, version {i}: process {pid} is gone"
                c.take_away("liar")
        print(f"# {served} served, {refused} refused")
        assert c.answer("good", "Hello!", max_tokens=20) == whole


@test
def hostile_plans_are_deployed_or_refused():
    with Cluster(agents=2, cores=1) as c, Folder() as folder:
        profile = c.hpctl("profile", DEMO, "--budget", "2")
        cluster = c.hpctl("topo")
        files = [folder.write(n + ".json", json.dumps(v).encode()) for n, v in (("profile", profile), ("cluster", cluster))]
        plan = os.path.join(folder.path, "plan.json")
        done = c.run("plan", "pipeline", "--cluster", files[1], "--profile", files[0], "--tokens", "64", "-o", plan)
        assert done.returncode == 0, done.stderr
        c.deploy("good", DEMO, "--agents", "a0,a1")
        whole = c.answer("good", "Hello!", max_tokens=20)
        pids = [c.local()["coordinator"]["pid"], *(a["pid"] for a in c.local()["agents"])]
        served, refused = 0, 0
        for hostile in mutants(read(plan), 40):
            path = folder.write("hostile.json", hostile)
            try:
                c.hpctl("deploy", DEMO, "--name", "liar", "--plan", path, timeout=40)
                assert c.chat("liar", "Hello!", max_tokens=4)[0] in (200, 400, 503)
                served += 1
            except Failed as e:
                assert e.message and e.code != "bug", e
                refused += 1
            for pid in pids:
                assert os.path.exists(f"/proc/{pid}"), f"seed {SEED}: process {pid} is gone; the plan is {path}"
            c.take_away("liar")
        print(f"# {served} served, {refused} refused")
        assert c.answer("good", "Hello!", max_tokens=20) == whole


@test
def hostile_contexts_and_state_of_local_clusters():
    with Cluster(agents=1, cores=1) as c, Folder() as folder:
        exported = os.path.join(folder.path, "context.json")
        done = c.run("context", "export", "local", "-o", exported)
        assert done.returncode == 0, done.stderr
        for i, hostile in enumerate(mutants(read(exported), 40)):
            path = folder.write("hostile.json", hostile)
            survives(f"context, version {i}", ["context", "import", path, "--name", f"h{i}"], c.env)
        survives("contexts", ["context", "ls"], c.env)
        for name in [entry for entry in os.listdir(os.path.join(c.folder, "config")) if entry.endswith(".json")] + ["contexts/local.json"]:
            path = os.path.join(c.folder, "config", name)
            whole = read(path)
            for i, hostile in enumerate(mutants(whole, 15)):
                with open(path, "wb") as f:
                    f.write(hostile)
                for verb in (["ps"], ["context", "ls"], ["local", "ls"], ["doctor"]):
                    survives(f"{name}, version {i}", verb, c.env)
            with open(path, "wb") as f:
                f.write(whole)
        c.hpctl("ps")


@test
def agents_refuse_hostile_files_of_the_devices_that_they_stand_for():
    profile, cluster = read(os.path.join(TESTBED, "llama-7b.profile.json")), read(os.path.join(TESTBED, "testbed.cluster.json"))
    with Folder() as folder:
        whole = {"profile": folder.write("profile.json", profile), "cluster": folder.write("cluster.json", cluster)}
        for name in whole:
            for i, hostile in enumerate(mutants(read(whole[name]), 25)):
                paths = dict(whole, **{name: folder.write("hostile.json", hostile)})
                args = [os.path.join(BUILD, "hp-agent"), "--join", "127.0.0.1:1", "--token", "nonsense", "--dir", os.path.join(folder.path, "agent"), "--network", "lo", "--pace",
                        paths["cluster"], "--profile", paths["profile"], "--as", "p/gpu0"]
                agent = subprocess.run(args, capture_output=True, timeout=SECONDS * SCALE, text=True, errors="replace", preexec_fn=limits)
                assert agent.returncode > 0 and agent.stderr.strip(), (name, i, agent.returncode, agent.stderr)


main()
