"""Pipeline plans on the HPipe testbed, method by method: predicted time to the first token, and how long planning took.

The testbed is examples/hpipe-testbed. What the plans take for real is another matter: this is the planner alone."""
import json
import os
import subprocess
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
HPCTL = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "hpctl")
DATA = os.path.join(ROOT, "examples", "hpipe-testbed")
METHODS = [("Base", ["--method", "even"]), ("GPipe", ["--method", "gpipe"]), ("GPipe, balanced", ["--method", "gpipe", "--partition", "balanced"]),
           ("TeraPipe", ["--method", "terapipe"]), ("tensor parallel", ["--method", "tp"]), ("HPipe", ["--method", "hpipe"]), ("exact", [])]


def main():
    for model in ("llama-7b", "gpt3-2b"):
        print(f"{model}, 2048 tokens, 4 x P100 and 2 x RTX 3090")
        print(f"  {'method':<18}{'predicted':>11}{'vs Base':>9}{'vs GPipe':>10}{'planned in':>12}")
        base = gpipe = None
        for name, options in METHODS:
            started = time.monotonic()
            out = subprocess.run([HPCTL, "plan", "pipeline", "--cluster", os.path.join(DATA, "testbed.cluster.json"), "--profile",
                                  os.path.join(DATA, f"{model}.profile.json"), "--tokens", "2048", *options, "-o", "json"],
                                 capture_output=True, text=True, check=True).stdout
            seconds, makespan = time.monotonic() - started, json.loads(out)["predicted"]["makespan_s"]
            base = base or makespan
            gpipe = makespan if name == "GPipe" else gpipe
            print(f"  {name:<18}{makespan:>9.3f} s{base / makespan:>8.2f}x{(gpipe or makespan) / makespan:>9.2f}x{seconds:>10.2f} s")


main()
