"""A model file without a cluster on a GPU, as the stand-in for CUDA runs it: what `hpctl run`, `local up` and `doctor` make of plugin, driver and memory."""
import json
import os
import shutil
import signal
import subprocess
import tempfile

from cluster import BUILD, SCALE
from tap import main, skip, test

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
GOLDEN = os.path.join(os.environ.get("HP_GOLDEN", os.path.join(ROOT, "..", "shared", "golden")), "llama2", "model-f32.gguf")
STANDIN = os.path.join(BUILD, "tests", "cuda_on_cpu", "libhp-cuda.so")
ASKED = ("Once upon a time", "--raw", "--temperature", "0", "--max-tokens", "12", "--compute", "f32", "--max-context", "256", "--max-sequences", "2", "-o", "json")
CHOSEN = "hpctl: computes on "


class Home:
    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="hp-test-")
        self.env = {k: v for k, v in os.environ.items() if k not in ("HP_CUDA_PLUGIN", "CUDA_ON_CPU")}
        self.env.update(XDG_STATE_HOME=os.path.join(self.folder, "state"), XDG_CACHE_HOME=os.path.join(self.folder, "cache"), HP_CONFIG_DIR=os.path.join(self.folder, "config"))
        return self

    def __exit__(self, *why):
        self.hpctl("local", "down", "--all")
        shutil.rmtree(self.folder, ignore_errors=True)

    def hpctl(self, *args, **env):
        return subprocess.run([os.path.join(BUILD, "hpctl"), *args], env={**self.env, **env}, capture_output=True, text=True, timeout=120 * SCALE)

    def text(self, *args, **env):
        """What the golden model says, and what was told of the devices."""
        done = self.hpctl("run", GOLDEN, *ASKED, *args, **env)
        assert done.returncode == 0, (args, env, done)
        return json.loads(done.stdout)["text"], [line for line in done.stderr.splitlines() if line.startswith("hpctl:")]


@test
def a_file_runs_on_the_gpu_with_the_tokens_of_the_cpu_and_says_where():
    if not os.path.exists(GOLDEN):
        skip("../shared/golden is not here")
    with Home() as home:
        stand_in = {"HP_CUDA_PLUGIN": STANDIN}
        on_cpu, told = home.text("--device", "cpu")
        assert on_cpu and told == [], told
        for args, env, line in (
                (("--device", "cuda:0,mem=64MiB"), {}, None),
                ((), {}, "cuda:0, CUDA stand-in"),
                ((), {"CUDA_ON_CPU": "memory=2000000"}, "cuda:0, CUDA stand-in, and on the CPU: the model takes 2.5 MB, of which 1.8 MB have room there"),
                ((), {"CUDA_ON_CPU": "memory=100000"}, "the CPU: cuda:0, CUDA stand-in, has 90.0 kB free for it, and the model takes 2.5 MB"),
                ((), {"CUDA_ON_CPU": "driver=0"}, "the CPU: this box has no NVIDIA driver"),
                ((), {"CUDA_ON_CPU": "malloc_fails=1"}, "the CPU: device cuda:0: its memory needs"),
                ((), {"HP_CUDA_PLUGIN": "/nowhere/libhp-cuda.so"}, "the CPU: the cuda backend cannot be loaded: /nowhere/libhp-cuda.so")):
            said, told = home.text(*args, **{**stand_in, **env})
            assert said == on_cpu, (args, env, said, on_cpu)
            assert len(told) == (line is not None) and all(t.startswith(CHOSEN + line) for t in told), (args, env, told)
        # The model does run there: on a GPU that fails it has no answer.
        failed = home.hpctl("run", GOLDEN, *ASKED, "--device", "cuda:0,mem=64MiB", **stand_in, CUDA_ON_CPU="call_fails=300")
        assert failed.returncode != 0 and "illegal memory access" in failed.stderr, failed


@test
def devices_that_there_are_not_are_refused_as_the_agent_does_and_local_start_keeps_those_that_there_are():
    with Home() as home:
        env = {"HP_CUDA_PLUGIN": STANDIN}

        def devices(agent):
            return {d["name"]: int(d["memory_bytes"]) >> 20 for d in json.loads(home.hpctl("node", "describe", agent, "-o", "json").stdout)["devices"]}
        up = home.hpctl("local", "up", "--agents", "2", "--cores", "1", "--device", "cuda:0,mem=64MiB", "--device", "cpu,mem=128MiB", "--device", "a1=cpu,mem=256MiB", "-o", "json", **env)
        assert up.returncode == 0, up
        assert devices("a0") == {"cuda0": 64, "cpu": 128} and devices("a1") == {"cpu": 256}, (devices("a0"), devices("a1"))
        token = json.loads(home.hpctl("node", "token", "create", "-o", "json").stdout)["token"]
        for spec in ("quark", "cuda:3", "cuda:0,mem=2GiB", "cuda:0,threads=2", "cpu:9999", "cpu,mem=x"):  # in the words of the agent
            agent = subprocess.run([os.path.join(BUILD, "hp-agent"), "--join", "127.0.0.1:1", "--token", token, "--dir", os.path.join(home.folder, "agent"), "--device", spec],
                                   env={**home.env, **env}, capture_output=True, text=True, timeout=60 * SCALE)
            own = home.hpctl("serve", __file__, "--port", "0", "--device", spec, **env)
            assert agent.returncode == own.returncode != 0, (spec, agent, own)
            assert agent.stderr.startswith("hp-agent: ") and own.stderr == agent.stderr.replace("hp-agent: ", "hpctl: ", 1), (spec, agent.stderr, own.stderr)
        os.kill(json.loads(up.stdout)["agents"][0]["pid"], signal.SIGKILL)
        again = home.hpctl("local", "start", "--agent", "a0", **env)
        assert again.returncode == 0 and devices("a0") == {"cuda0": 64, "cpu": 128}, (again, devices("a0"))
        assert home.hpctl("local", "down", "--purge").returncode == 0
        for args, words in ((("--device", "quark"), "--device quark: is neither cpu[:CORES]"), (("--device", "a7=cpu"), "there is no agent a7"),
                            (("--device", "cpu", "--devices", "2"), "neither --devices nor --pace"), (("--device", "cpu:0") * 17, "an agent has at most 16 devices")):
            refused = home.hpctl("local", "up", "--agents", "2", *args, **env)
            assert refused.returncode != 0 and words in refused.stderr, (args, refused)
        many = home.hpctl("run", __file__, "hi", *("--device", "cpu:0") * 17)
        assert many.returncode == 2 and "an agent has at most 16 devices" in many.stderr, many
        deployed = home.hpctl("run", "demo", "hi", "--device", "cpu")
        assert deployed.returncode == 2 and "--device is for a model file" in deployed.stderr, deployed


@test
def bench_measures_the_gpu_that_a_model_runs_on_and_what_it_is_told_to():
    if not os.path.exists(GOLDEN):
        skip("../shared/golden is not here")
    with Home() as home:
        def bench(*args, **env):
            done = home.hpctl("bench", GOLDEN, "--prompt", "8", "--answer", "2", "--repeat", "1", "-o", "json", *args, **env)
            return done, json.loads(done.stdout)
        gpu = {"HP_CUDA_PLUGIN": STANDIN}
        for args, env, device in (((), gpu, "cuda:0 CUDA stand-in"), (("--device", "cuda:0,mem=64MiB"), gpu, "cuda:0 CUDA stand-in"), (("--device", "cpu,threads=1"), gpu, "cpu "), (("--threads", "1"), gpu, "cpu "),
                                  ((), {**gpu, "CUDA_ON_CPU": "memory=2000000"}, "cpu "), ((), {"HP_CUDA_PLUGIN": "/nowhere/libhp-cuda.so"}, "cpu ")):
            done, told = bench(*args, **env)
            assert done.returncode == 0 and told["device"].startswith(device) and all(r["tokens_per_s"] > 0 for r in told["rows"]), (args, env, done)
        for args, words in ((("--device", "cuda:3"), "device cuda:3"), (("--device", "cpu", "--threads", "2"), "say cpu,threads=2")):
            done, told = bench(*args, **gpu)
            assert done.returncode != 0 and words in told["error"]["message"], (args, done)


@test
def doctor_says_whether_a_gpu_could_compute_here():
    with Home() as home:
        for env, state, words in (
                ({"HP_CUDA_PLUGIN": STANDIN}, "ok", "cuda:0 is CUDA stand-in, 1.1 GB of its 1.1 GB are free; libhp-cuda.so and the driver work"),
                ({"HP_CUDA_PLUGIN": STANDIN, "CUDA_ON_CPU": "driver=0"}, "warning", "this box has no NVIDIA driver"),
                ({"HP_CUDA_PLUGIN": "/nowhere/libhp-cuda.so"}, "warning", "the cuda backend cannot be loaded: /nowhere/libhp-cuda.so")):
            found = [f for f in json.loads(home.hpctl("doctor", "-o", "json", **env).stdout) if f["check"] == "GPU"]
            assert len(found) == 1 and found[0]["state"] == state and words in found[0]["text"], (env, found)


main()
