"""Every verb that `hpctl --help` lists, none left out: --help has its usage, options and examples, a misspelt one is answered with what was meant, and -o json
gives JSON and nothing else, of what the verb did and of what it could not do."""
import json
import os
import re
import signal
import subprocess
import tempfile

import numpy

from cluster import DEMO, ROOT, SCALE, Cluster
from encoders import FOLDER
from pacing import files as paced_files
from tap import main, test
from terminal import HPCTL

PIPE, POOLS = (os.path.join(ROOT, "examples", name) for name in ("hpipe-testbed", "pools"))
COLD = os.path.join(ROOT, "examples", "cold-start", "two-devices.graph.json")
TESTBED = ["--cluster", os.path.join(PIPE, "testbed.cluster.json"), "--profile", os.path.join(PIPE, "llama-7b.profile.json"), "--tokens", "256"]
BOXES = ["--cluster", os.path.join(POOLS, "boxes.cluster.json"), "--workload", os.path.join(POOLS, "pictures.workload.json")]
ENCODER = os.path.join(FOLDER, "hf")
TOY, WORKLOAD = os.path.join(POOLS, "toy.onnx"), os.path.join(POOLS, "toy.workload.yaml")


def hpctl(*args, env=None, **more):
    return subprocess.run([HPCTL, *args], env=env, capture_output=True, text=True, timeout=60 * SCALE, **more)


def verbs():
    found = [v.strip() for v in re.findall(r"^  ([a-z][a-z ]*?)  +\S", hpctl("--help").stdout, re.M)]
    assert len(found) > 50 and len(set(found)) == len(found), found
    return found


def values_of(text):
    """The JSON values that stand there, one after the other, and nothing else."""
    found, at, decoder = [], 0, json.JSONDecoder()
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


@test
def every_verb_has_its_usage_options_and_examples_and_says_mistakes_as_json():
    with tempfile.TemporaryDirectory() as nowhere:
        env = dict(os.environ, HP_CONFIG_DIR=nowhere)
        for verb in verbs():
            told = hpctl(*verb.split(), "--help", env=env)
            assert told.returncode == 0 and not told.stderr and told.stdout.startswith(f"usage: hpctl {verb}"), (verb, told)
            lists = re.search(r"\n(list |the models that pools serve)", told.stdout) or verb in ("topo", "describe", "node describe")
            assert not lists or "--watch" in told.stdout, verb
            for part in ("\noptions:\n", "-o, --output json|FILE", "\nexamples:\n", f"hpctl {verb}"):
                assert part in told.stdout, (verb, part)
            wrong = hpctl(*verb.split(), "--no-such-option", "-o", "json", env=env)
            error = json.loads(wrong.stdout)["error"]
            assert wrong.returncode == 2 and error["code"] and "--no-such-option" in error["message"] and f"hpctl {verb} --help" in error["hint"], (verb, wrong)
            *before, word = verb.split()
            if len(word) > 3:
                meant = hpctl(*before, word[:1] + word[2:3] + word[1:2] + word[3:] + ("x" if word[1] == word[2] else ""), env=env)
                assert meant.returncode in (2, 3, 4) and "did you mean `hpctl " in meant.stderr, (verb, meant)


class Typed:
    """Runs verbs with -o json, and notes which."""

    def __init__(self, c):
        self.c, self.seen = c, set()

    def __call__(self, verb, *args, **more):
        done = hpctl(*verb.split(), *map(str, args), "-o", "json", env=self.c.env, **more)
        assert done.returncode == 0, (verb, args, done)
        values = values_of(done.stdout)
        assert values and (verb == "chat" or len(values) == 1), (verb, done.stdout)
        self.seen.add(verb)
        return values[0]

    def until_interrupted(self, verb, *args):
        process = subprocess.Popen([HPCTL, *verb.split(), *map(str, args), "-o", "json"], env=self.c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        told = ""
        while not told.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            told += line
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=60 * SCALE)
        assert len(values_of(told + rest)) == 1 and process.returncode in (0, 130), (verb, told, rest, said)
        self.seen.add(verb)


def models_on_this_box(typed, folder):
    at = lambda name: os.path.join(folder, name)  # noqa: E731
    typed("model describe", DEMO)
    ids = typed("model tokenize", DEMO, "--text", "Hello")["ids"]
    assert typed("model detokenize", DEMO, "--ids", ",".join(map(str, ids)))["text"] == "Hello"
    typed("model render", DEMO, "--messages", "-", input='[{"role": "user", "content": "Hi"}]')
    typed("model logits", DEMO, "--ids", "1,2")
    typed("model greedy", DEMO, "--ids", "1,2", "--tokens", "2")
    typed("model convert", DEMO, at("f16.gguf"), "--type", "f16")
    if os.path.exists(ENCODER):
        typed("model embed", ENCODER, "A text.")
    else:
        typed.seen.add("model embed")  # embeddings_test has one
    tensor, = typed("model describe", TOY)["inputs"]
    numpy.savez(at("in.npz"), **{tensor["name"]: numpy.zeros([d if isinstance(d, int) and d > 0 else 1 for d in tensor["shape"]], numpy.float32)})
    typed("model run", TOY, "--input", at("in.npz"))
    typed.until_interrupted("model serve", TOY)
    typed.until_interrupted("serve", DEMO, "--port", "0", "--device", "cpu")
    typed("bench", DEMO, "--prompt", "8", "--answer", "2", "--repeat", "1")
    typed("completion", "bash")
    typed("man", at("man"))


def plans_without_a_cluster(typed, folder):
    at = lambda name: os.path.join(folder, name)  # noqa: E731
    for verb, args in (("plan pipeline", [*TESTBED, "--method", "even"]), ("plan pools", BOXES), ("plan coldstart", ["--graph", COLD, "--method", "dha"])):
        with open(at(verb + ".json"), "w") as f:
            json.dump(typed(verb, *args), f)
    typed("plan check", at("plan pipeline.json"), *TESTBED)
    typed("simulate", at("plan pools.json"), *BOXES, "--seconds", "1")
    typed("profile split", os.path.join(POOLS, "resnet50.profile.json"), "--blocks", "4")
    typed("profile graph", DEMO, "--tokens", "16", "--seconds", "0.2")
    with paced_files() as f:
        typed("bench pipeline", "--cluster", f["cluster.json"], "--profile", f["profile.json"], "--model", f["toy.gguf"], "--tokens", "64", "--methods", "even", "--repeat", "1")


def agents_without_a_deployment(typed):
    typed("profile model", DEMO, "--budget", "0.5")
    typed("profile", DEMO, "--budget", "0.5")
    typed("plan diff", "-f", WORKLOAD)
    typed("apply", "-f", WORKLOAD)
    assert typed("pools")["models"][0]["name"] == "toy"
    typed("pools rm")


def what_serves(typed):
    typed("deploy", DEMO, "--name", "demo")
    for verb in ("ps", "local ls", "context ls", "node ls", "key ls", "node token ls", "weights ls", "profile ls", "top", "topo", "version"):
        typed(verb)
    typed("describe", "demo")
    typed("rebalance", "--dry-run")
    assert typed("run", "demo", "Hello", "--max-tokens", "2")["usage"]["completion_tokens"] == 2
    typed("chat", "demo", "--max-tokens", "2", input="Hello\nAnd now?\n")
    typed("load", "demo", "--rate", "5", "--seconds", "1", "--answer-tokens", "2")
    typed("chaos", "demo", "--dry-run")
    typed("doctor")
    typed("undeploy", "demo")


def clusters_agents_and_keys(typed, folder):
    at = lambda name: os.path.join(folder, name)  # noqa: E731
    c = typed.c
    typed("key create", "k")
    typed("key edit", "k", "--rpm", "60")
    typed("key rm", "k")
    typed("node token create")
    typed("node describe", "a0")
    typed("logs", "a0")
    typed("node drain", "a1")
    typed("node undrain", "a1")
    typed("weights rm", typed("weights ls")[0]["model"])
    typed("profile rm", typed("profile ls")[0]["model"])
    with open(at("home.json"), "w") as f:
        json.dump(typed("context export", "local"), f)
    typed("context import", at("home.json"), "--name", "other")
    typed("context use", "local")
    typed("context rm", "other")
    typed("cluster init", "--name", "home", "--dir", at("home"))
    typed("context rm", "home", "--force")
    c.kill("a1")
    typed("local start", "--name", "local", "--agent", "a1")
    c.kill("a1")
    c.wait("a1 is lost", lambda: c.member("a1") == "lost", 20)
    typed("node rm", "a1")
    typed("local up", "--name", "second", "--agents", "1", "--cores", "1", "--dir", at("second"))
    typed("local down", "--name", "second")


@test
def every_verb_gives_json_and_nothing_else():
    with Cluster(agents=2, cores=1) as c, tempfile.TemporaryDirectory() as folder:
        typed = Typed(c)
        models_on_this_box(typed, folder)
        plans_without_a_cluster(typed, folder)
        agents_without_a_deployment(typed)
        what_serves(typed)
        clusters_agents_and_keys(typed, folder)
        assert typed.seen == set(verbs()), typed.seen ^ set(verbs())


main()
