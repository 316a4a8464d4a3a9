"""Every command that README, the documents and the help of a verb show is run, with files and names of a small cluster in the place of those that they speak of."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from cluster import BUILD, DEMO, ROOT, SCALE, Cluster
from tap import main, test

EXAMPLES = os.path.join(ROOT, "examples")
PIPE, POOLS = os.path.join(EXAMPLES, "hpipe-testbed"), os.path.join(EXAMPLES, "pools")
COLD = os.path.join(EXAMPLES, "cold-start", "two-devices.graph.json")
GOLDEN = os.path.join(os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared")), "golden-families")

# What stands for a file that a document names.
FILES = {
    DEMO: ("model.gguf", "llama.gguf", "demo.gguf", "demo-q8_0.gguf", "llama-3.2-1b-q8_0.gguf", "llama-3.2-3b-q8_0.gguf"),
    os.path.join(PIPE, "toy.gguf"): ("toy.gguf",),
    os.path.join(PIPE, "testbed.cluster.json"): ("testbed.cluster.json",),
    os.path.join(PIPE, "llama-7b.profile.json"): ("llama-7b.profile.json",),
    os.path.join(POOLS, "toy.onnx"): ("resnet50.onnx", "toy.onnx"),
    os.path.join(POOLS, "toy.workload.yaml"): ("workload.yaml",),
    os.path.join(POOLS, "requests.csv"): ("requests.csv",),
    os.path.join(POOLS, "resnet50.profile.json"): ("resnet.layers.json",),
    COLD: ("G.json", "chain.json", "openllama-3b.json"),
}

# Commands that are not typed here, and why.
NOT_TYPED = {
    r"^hpctl (chat|top|.* --(watch|follow)|serve|model serve|top --interval)\b(?!.*--once)": "they go on until somebody ends them: walk_test, own_test, top_test and kserve_test do",
    r"^hpctl run \./model|^hpctl run examples/|^hpctl bench": "walk_test types them; pipelines are timed for seconds by paced_test",
    r"^hpctl (cluster init|local|context (use|rm|import|export))\b|^hpctl node token create .*once": "they make, end or rename clusters: hpctl_test and walk_test do",
    r"^(hp-agent|hp-coordinator) ": "boxes join by them: membership_test and reach_test do",
    r"^hpctl chaos demo( --faults (kill|kill,stop|delay|loss) |$)": "minutes of faults: chaos_test does",
    r"^hpctl (node (drain|undrain|rm)|undeploy|rebalance|pools rm|weights rm|profile rm)\b": "they take away what others need: hpctl_test, rebalance_test, handoff_test and pools_test do",
    r"all-MiniLM|bge-small|bert\.onnx|Llama-3\.2-1B|big-00001|smollm2": "models that are not in the clone: embeddings_test, pools_test, folder_test, weights_test and real_model_test have such",
    r"--agents a,b|--agents c|--prefill a0,a1|--layers |--plan plan|deploy .*--copies|--pace ": "deployments of their own shape: handoff_test, paced_test, loopback_test and recovery_test make them",
    r"--nodes attic,cellar|sub\.json|--kind L4|L4-P4|three-models|--slo-margin auto|--method milp": "boxes and published workloads that are not in the clone, and searches of half a minute: tests/golden does them",
    r"^hpctl (apply|plan diff|pools|load (--workload|resnet)|profile model resnet50.onnx( -o resnet50.json)?$)": "pools: pools_test and load_test type them; the example is served below",
    r"^hpctl (key rm laptop|key edit guest|key create guest)|^hpctl load demo --arrivals (bursty|requests)": "one of each kind is typed",
    r"^hpctl model run|^hpctl completion|^hpctl man|^hpctl: |^hpctl  ": "onnx_test runs networks; walk_test and install use completions and pages; not commands",
}
# What is shortened: searches, loads and measurements that people give more time.
SHORTER = ((r"--seconds \d+", "--seconds 1"), (r"--budget \d+", "--budget 1"), (r"--evaluations \d+", "--evaluations 2000"), (r"--time-limit \d+", "--time-limit 1"), (r"--rate \d+", "--rate 8"),
           (r"(plan coldstart (?!.*(--method|--time-limit|--evaluations)).*)", r"\1 --evaluations 2000"), (r"(profile model \S+.gguf(?! .*--budget).*|profile \S+.gguf.*)", r"\1 --budget 1"),
           (r"deploy (\S+)( --name \w+| --agents a0,a1,a2)?$", r"deploy \1 --name demo"), (r"15043,3186|15043", "43"), (r"describe (llama|m)\b", "describe demo"), (r"run (llama|m)\b", "run demo"), (r"/tmp/lp", "lp"), (r"(simulate .*--sweep)", r"\1 --seconds 2"))


def shown():
    """Every line that is a command, once, in the order of the documents."""
    found = {}
    for name in ["README.md", *sorted(os.path.join("docs", f) for f in os.listdir(os.path.join(ROOT, "docs")) if f.endswith(".md") and f != "architecture.md" and f != "protocol.md")]:
        with open(os.path.join(ROOT, name)) as f:
            text = f.read()
        code = "\n".join(re.findall(r"```\w*\n(.*?)```", text, re.S)) + "\n" + "\n".join(re.findall(r"^    (\S.*)$", text, re.M))
        for line in code.split("\n"):
            line = re.sub(r"\s+#.*|\s{3,}.*", "", re.sub(r"^\s*(\$ )?(build/)?", "", line)).rstrip(" &")
            if re.match(r"(hpctl|hp-agent|hp-coordinator) ", line) and "…" not in line and " [--" not in line:
                for one in line.split("; "):
                    found.setdefault(one.replace("build/hpctl", "hpctl"), name)
    return found


def shorter(line):
    for what, instead in SHORTER:
        line = re.sub(what, instead, line)
    return line


class Home:
    """A folder with the files that documents speak of, and the programs on the path."""

    def __init__(self, cluster):
        self.folder = tempfile.mkdtemp(prefix="hp-test-")
        self.env = dict(cluster.env, PATH=BUILD + ":" + os.environ["PATH"], HOME=self.folder)
        os.symlink(EXAMPLES, os.path.join(self.folder, "examples"))
        for source, names in FILES.items():
            for name in names:
                os.symlink(source, os.path.join(self.folder, name))
        for name, text in (("question.txt", "What is the capital of Cuba?"), ("notes.txt", "One note.\n")):
            with open(os.path.join(self.folder, name), "w") as f:
                f.write(text)

    def sh(self, line):
        """In a folder of its own with the same files, since many write the same names."""
        folder = tempfile.mkdtemp(dir=self.folder)
        for name in os.listdir(self.folder):
            if not name.startswith("tmp"):
                os.symlink(os.path.join(self.folder, name), os.path.join(folder, name))
        return subprocess.run(["bash", "-c", line], env=self.env, cwd=folder, capture_output=True, text=True, timeout=120 * SCALE)

    def typed(self, line, shown_as):
        """How long it took, and what went wrong."""
        began, done = time.monotonic(), self.sh(line)
        said = (done.stdout + done.stderr).strip()
        wrong = done.returncode or not said and not re.search(r" (-o|--svg) ", line)
        return time.monotonic() - began, f"{shown_as}\n  typed as: {line}\n  exit {done.returncode}: {said[-600:]}" if wrong else ""


def inputs_of(line):
    """The files that a planner reads are of its kind: C.json of pools is another than C.json of pipelines."""
    pools = "--workload" in line or "plan pools" in line
    line = line.replace("W.json", os.path.join(POOLS, "pictures.workload.json"))
    for name in ("C.json", "cluster.json", "c.json"):
        line = re.sub(rf"(--cluster ){re.escape(name)}\b", rf"\1{os.path.join(POOLS, 'boxes.cluster.json') if pools else os.path.join(PIPE, 'testbed.cluster.json')}", line)
    line = re.sub(r"(--profile )(P|profile)\.json\b", rf"\1{os.path.join(PIPE, 'llama-7b.profile.json')}", line)
    if line.startswith(("hpctl plan check", "hpctl simulate")):
        kind = "pools" if pools else "coldstart" if "--graph" in line else "pipeline"
        line = line.replace(" plan.json", f" {kind}.plan.json")
    return line


def without_cluster(line):
    return re.match(r"hpctl (plan (pipeline|pools|coldstart|check)|simulate|profile (split|graph)|model (?!.*--deployment)|version|topo --cluster)|hpctl profile model .*--local", line)


@test
def every_command_that_is_shown_is_typed_and_ends_well():
    lines = shown()
    stale = [pattern for pattern in NOT_TYPED if not any(re.search(pattern, line) for line in lines)]
    assert not stale, f"no document shows what these leave out: {stale}"
    typed = {shorter(inputs_of(line)): f"{document}: {line}" for line, document in lines.items() if not any(re.search(p, line) for p in NOT_TYPED)}
    assert len(typed) > 60, list(typed)
    with Cluster(agents=3, cores=1) as c:
        home = Home(c)
        try:
            made = [home.sh(inputs_of(f"hpctl plan pipeline --cluster C.json --profile P.json --tokens 2048 -o {home.folder}/pipeline.plan.json")),
                    home.sh(inputs_of(f"hpctl plan pools --cluster C.json --workload W.json -o {home.folder}/pools.plan.json")),
                    home.sh(f"hpctl plan coldstart --graph G.json --method dha -o {home.folder}/coldstart.plan.json")]
            assert not any(m.returncode for m in made), made
            # Planners wait for nobody; with the cluster, what wants idle agents comes first, then the deployment that others ask.
            apart = [one for one in typed.items() if without_cluster(one[0])]
            together = sorted((one for one in typed.items() if not without_cluster(one[0])), key=lambda one: (not one[0].startswith("hpctl profile"), not one[0].startswith("hpctl deploy")))
            with ThreadPoolExecutor(2) as pool:
                ended = [pool.submit(home.typed, *one) for one in apart]
                said = [home.typed(*one) for one in together] + [e.result() for e in ended]
            wrong = [why for _, why in said if why]
            print(f"# {len(said)} commands; the longest took {max(s for s, _ in said):.1f} s")
            assert not wrong, "\n".join(wrong)
        finally:
            shutil.rmtree(home.folder, ignore_errors=True)


@test
def the_example_of_pools_is_served_as_it_says():
    with Cluster(agents=2, cores=1) as c:
        home = Home(c)
        try:
            with open(os.path.join(POOLS, "README.md")) as f:
                lines = re.findall(r"^    (hpctl (?:apply|pools|load).*)$", f.read(), re.M)
            assert len(lines) == 3, lines
            c.deploy("demo")
            busy = home.sh("hpctl apply -f examples/pools/toy.workload.yaml")
            assert busy.returncode and 'holds stages of deployment "demo"' in busy.stderr and "hpctl undeploy demo" in busy.stderr, "who is in the way is named, and what to type: " + busy.stderr
            c.hpctl("undeploy", "demo")
            for line in lines:
                _, why = home.typed(shorter(line), "examples/pools/README.md")
                assert not why, why
            assert json.loads(home.sh("hpctl pools -o json").stdout)["models"][0]["name"] == "toy"
        finally:
            shutil.rmtree(home.folder, ignore_errors=True)


main()
