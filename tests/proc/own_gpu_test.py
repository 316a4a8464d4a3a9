"""A model file without a cluster on a GPU, as the stand-in for CUDA runs it: what `hpctl run` and `doctor` make of plugin, driver and memory."""
import json
import os
import shutil
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
def doctor_says_whether_a_gpu_could_compute_here():
    with Home() as home:
        for env, state, words in (
                ({"HP_CUDA_PLUGIN": STANDIN}, "ok", "cuda:0 is CUDA stand-in, 1.1 GB of its 1.1 GB are free; libhp-cuda.so and the driver work"),
                ({"HP_CUDA_PLUGIN": STANDIN, "CUDA_ON_CPU": "driver=0"}, "warning", "this box has no NVIDIA driver"),
                ({"HP_CUDA_PLUGIN": "/nowhere/libhp-cuda.so"}, "warning", "the cuda backend cannot be loaded: /nowhere/libhp-cuda.so")):
            found = [f for f in json.loads(home.hpctl("doctor", "-o", "json", **env).stdout) if f["check"] == "GPU"]
            assert len(found) == 1 and found[0]["state"] == state and words in found[0]["text"], (env, found)


main()
