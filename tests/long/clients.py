"""Every client that is known to work, in the newest version that the package index gives, as it is: clients.py SECONDS. Client libraries (tests/proc/client_checks.py), tritonclient over HTTP and gRPC (tests/proc/triton_check.py, triton_grpc_check.py), lm-eval's `local-completions`
with log-likelihoods, whose scores must be those of the model's own logits, and locust with 20 users for so many seconds. Installs about 1 GB into a folder of its own, which it removes.
The last line sums it up; exits with 1 when something did not hold, and with 77 where there is no package index."""
import json
import os
import subprocess
import sys
import tempfile

import numpy

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")]
from cluster import BUILD, DEMO, ROOT, SCALE, Cluster  # noqa: E402

CHECKS = os.path.join(ROOT, "tests", "proc", "client_checks.py")
# What asks for other versions of the same libraries is apart: packages, and the clients that must be there.
LIBRARIES = ((("openai", "anthropic", "ollama", "langchain-openai"), ("openai", "anthropic", "ollama", "langchain_openai")),
             (("litellm", "instructor>=1.17", "llm>=0.32"), ("litellm", "instructor", "llm")),
             (("llama-index-llms-openai-like",), ("llama_index",)))
CAPITALS = {"Cuba": "Havana", "Peru": "Lima", "Ecuador": "Quito", "France": "Paris"}
ASKED = "<|im_start|>user\nWhat is the capital of {}?<|im_end|>\n<|im_start|>assistant\n"
TASKS = {"chosen": {"output_type": "multiple_choice", "doc_to_text": "{{begun}}", "doc_to_target": "gold", "doc_to_choice": "{{choices}}", "metric_list": [{"metric": "acc"}]},
         "rolling": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{page}}", "metric_list": [{"metric": "bits_per_byte"}]},
         "written": {"output_type": "generate_until", "doc_to_text": "{{asked}}", "doc_to_target": "{{answer}}", "generation_kwargs": {"until": ["\n"], "max_gen_toks": 40},
                     "metric_list": [{"metric": "exact_match"}]}}
USERS = 20
LOCUST = """
import json
from locust import HttpUser, constant, task


class Asks(HttpUser):
    wait_time = constant(0.05)

    def ask(self, stream):
        body = {"model": "demo", "messages": [{"role": "user", "content": "What is the capital of Cuba?"}], "temperature": 0, "stream": stream}
        with self.client.post("/v1/chat/completions", json=body, catch_response=True, name="stream" if stream else "whole") as r:
            if r.status_code != 200 or "Havana" not in r.text.replace('"}, "', "") and not stream:
                r.failure(r.text[:200])
            elif stream and not r.text.rstrip().endswith("[DONE]"):
                r.failure("cut: " + r.text[-200:])

    @task
    def whole(self):
        self.ask(False)

    @task
    def streamed(self):
        self.ask(True)
"""


def installed(folder, *packages):
    """The environment in which a python finds these, or None; and their versions."""
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--timeout", "20", "--retries", "1", "--disable-pip-version-check", "--no-cache-dir",
                           "--target", folder, *packages], capture_output=True, text=True, timeout=900 * SCALE)
    if done.returncode:
        print("\n".join(done.stderr.strip().splitlines()[-3:]))
        assert "conflicting" not in done.stderr and "Failed" not in done.stderr, packages
        return None, ""
    env = {**os.environ, "PYTHONPATH": folder, "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": os.path.join(folder, "cache")}
    names = [p.split(">")[0].split("[")[0] for p in packages]
    said = subprocess.run([sys.executable, "-c", "import sys, importlib.metadata as m; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))", *names], env=env, capture_output=True, text=True)
    return env, said.stdout.strip()


def run(env, *arguments, cwd=None, seconds=600):
    done = subprocess.run([sys.executable, *arguments], env=env, cwd=cwd, capture_output=True, text=True, timeout=seconds * SCALE)
    print(done.stdout[-4000:])
    if done.returncode:
        sys.exit(f"{arguments[:3]}: exit {done.returncode}\n{done.stderr[-3000:]}\nFAILED")


def log_shares(c, ids):
    """Logarithms of the shares of all tokens behind each position, by the model's own logits."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as f:
        done = c.run("model", "logits", DEMO, "--ids", ",".join(map(str, ids)), "--compute", "f32", "-o", f.name)
        assert done.returncode == 0, done.stderr
        rows = numpy.load(f.name).astype(numpy.float64)
    most = rows.max(axis=1, keepdims=True)
    return rows - most - numpy.log(numpy.exp(rows - most).sum(axis=1, keepdims=True))


def score(c, before, ids):
    """Of the tokens `ids` behind `before`: the sum of their log-likelihoods, and whether each is the likeliest."""
    rows = log_shares(c, before + ids)[len(before) - 1:]
    return sum(rows[k][t] for k, t in enumerate(ids)), all(rows[k].argmax() == t for k, t in enumerate(ids))


def ids_of(c, text):
    return c.hpctl("model", "tokenize", DEMO, "--text", text, "--no-special")["ids"] if text else []


def evaluate(c, env, folder):
    """lm-eval's own logs of three tasks; how many scores were compared, and the largest difference."""
    pages = os.path.join(folder, "pages.jsonl")
    with open(pages, "w") as f:
        for i, (country, city) in enumerate(CAPITALS.items()):
            asked = ASKED.format(country)
            f.write(json.dumps({"begun": asked + f"The capital of {country} is", "choices": [v + "." for v in CAPITALS.values()], "gold": i, "asked": asked,
                                "answer": f"The capital of {country} is {city}.", "page": f"The capital of {country} is {city}. " * 8}) + "\n")
    for name, task in TASKS.items():
        with open(os.path.join(folder, name + ".yaml"), "w") as f:  # JSON is YAML
            json.dump({"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": pages}}, "test_split": "test", **task}, f)
    run(env, "-m", "lm_eval", "--model", "local-completions", "--model_args", f"model=demo,base_url={c.http}/v1/completions,max_retries=1", "--include_path", folder, "--tasks", ",".join(TASKS),
        "--batch_size", "4", "--log_samples", "--output_path", os.path.join(folder, "out"), cwd=folder)
    logs = {}
    for at, _, files in os.walk(os.path.join(folder, "out")):
        for name in files:
            if name.startswith("samples_"):
                with open(os.path.join(at, name)) as f:
                    logs[name.split("_")[1]] = [json.loads(line) for line in f]
    assert sorted(logs) == sorted(TASKS) and all(len(v) == len(CAPITALS) for v in logs.values()), logs.keys()
    assert all(s["exact_match"] == 1 for s in logs["written"]), logs["written"]
    end = c.request("GET", "/tokenizer_info")[1]["eos_token"]
    compared, most = 0, 0.0
    for s in logs["chosen"]:
        for k, (got, greedy) in enumerate(r[0] for r in s["resps"]):
            said = s["arguments"][f"gen_args_{k}"]
            before, whole = ids_of(c, said["arg_0"]), ids_of(c, said["arg_0"] + said["arg_1"])
            want, likeliest = score(c, before, whole[len(before):])
            assert likeliest == (greedy == "True"), (said, greedy)
            compared, most = compared + 1, max(most, abs(want - float(got)))
    assert sum(s["acc"] for s in logs["chosen"]) == len(CAPITALS), logs["chosen"]
    for s in logs["rolling"]:
        want, _ = score(c, ids_of(c, end), ids_of(c, s["doc"]["page"]))
        compared, most = compared + 1, max(most, abs(want - float(s["resps"][0][0])))
    assert most < 2e-2, most  # sums of up to a hundred tokens, each within 1e-4
    return compared, most


def infer(env, folder):
    """tritonclient against the coordinator's /v2, and by gRPC where that was built, with a key and without; by which it was."""
    import pools_test
    cluster, profile, workload = pools_test.files(folder, 10 * SCALE)
    more = {"grpc_port": 0} if os.path.exists(os.path.join(BUILD, "libhp-grpc.so")) else {}
    with Cluster(agents=3, cores=1, pace=cluster, profile=profile, **more) as c:
        c.hpctl("apply", "-f", workload)
        net, ways = pools_test.Net(c, numpy), {"http": None, **({"grpc": c.state["grpc"]} if more else {})}
        for way in ways.values():
            assert pools_test.triton(c, net, folder, env=env, grpc=way)
        # By gRPC a key of one model is told of another that it may not use it, and not that there is none.
        keys = {"http": c.hpctl("key", "create", "one", "--models", "net")["key"], "grpc": c.hpctl("key", "create", "all")["key"]}
        for name, way in ways.items():
            assert pools_test.triton(c, net, folder, env=env, key=keys[name], grpc=way)
        return " and ".join(ways)


def drive(c, env, folder, seconds):
    """locust's totals."""
    with open(os.path.join(folder, "locustfile.py"), "w") as f:
        f.write(LOCUST)
    for longer in (1, 4):  # on a busy machine its users are not there before the first time is over
        run(env, "-m", "locust", "--headless", "-f", "locustfile.py", "-H", c.http, "-u", str(USERS), "-r", str(USERS), "-t", f"{longer * seconds}s", "--json-file", "told", "--only-summary", cwd=folder,
            seconds=longer * seconds + 120)
        with open(os.path.join(folder, "told.json")) as f:
            told = json.load(f)
        if told:
            break
    failed = sum(row["num_failures"] for row in told)
    done = sum(row["num_requests"] for row in told) - failed
    assert failed == 0 and done > USERS, told
    return done


def main():
    seconds, versions = int(float(sys.argv[1])), []
    with tempfile.TemporaryDirectory(prefix="hp-clients-") as folder:
        env, said = installed(os.path.join(folder, "harness"), "lm-eval[api]", "locust")
        if not env:
            print("no package index gave the clients")
            sys.exit(77)
        versions.append(said)
        with Cluster(agents=3, cores=1) as c:
            c.deploy("demo", DEMO, "--compute", "f32", "--agents", "a0,a1,a2")
            compared, most = evaluate(c, env, folder)
            done = drive(c, env, folder, seconds)
            for i, (packages, needed) in enumerate(LIBRARIES):
                env, said = installed(os.path.join(folder, str(i)), *packages)
                assert env, packages
                versions.append(said)
                run(env, CHECKS, c.http, *needed)
        if os.path.isdir(os.path.join(ROOT, "..", "shared", "golden-onnx")):
            env, said = installed(os.path.join(folder, "triton"), "tritonclient[http,grpc]")
            assert env, "tritonclient"
            versions.append(f"{said} ({infer(env, folder)})")
        print(f"{', '.join(versions)}: all fine; {compared} log-likelihoods of lm-eval within {most:.1e} of the model's own; {done} requests of locust's {USERS} users in {seconds} s, none failed")


main()
