"""`hpctl chaos` for long: chaos.py SECONDS SEED [FAULTS [HOLD]]. Three agents of one core, the demo model with a copy of each stage, 20 clients; an agent is killed every 3.5 s (or what FAULTS say, for HOLD seconds each, 1.5). No client may see an error or another answer.
The last line sums it up; the exit status is the verb's."""
import json
import os
import re
import subprocess
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")]
from cluster import BUILD, DEMO, Cluster  # noqa: E402


def main():
    seconds, seed, faults, hold = [*sys.argv[1:], *("kill", "1.5")[len(sys.argv) - 3:]]
    with Cluster(agents=3, cores=1, memory="24MB") as c:
        c.deploy("demo", DEMO, "--compute", "f32", "--max-context", "512", "--upload", "--copies", "2")
        c.wait("all is copied", lambda: all("copy_on" in s and s["copy_on"] != s["agent"] for s in c.hpctl("describe", "demo")["stages"]))
        done = subprocess.run([os.path.join(BUILD, "hpctl"), "chaos", "demo", "-o", "json", "--faults", faults, "--seconds", seconds, "--every", "3.5", "--hold", hold, "--seed", seed],
                              env=c.env, stdout=subprocess.PIPE, text=True)
        r = json.JSONDecoder().raw_decode(done.stdout)[0]
        with open(os.path.join(c.folder, "state", "coordinator", "log")) as log:
            found = [float(s) for s in re.findall(r"place_recovered .*found_s=([0-9.]+)", log.read())]
        a = r["answers"]
        for cause in r["causes"]:
            print(f"{cause['count']} times {cause['cause']}: {cause['message']}")
        print(f"{len(r['faults'])} faults ({faults}) in {r['seconds']:.0f} s from seed {seed} under {a['clients']} clients: {a['whole']} answers whole, {a['different']} different, {a['refused']} refused, {a['failed']} failed, "
              f"{a['open']} open, {a['tokens']} tokens; longest wait between two tokens by fault: median {r['pause']['median_s']:.2f} s, longest {r['pause']['longest_s']:.2f} s; {len(found)} places lost, "
              f"each found within {max(found, default=0):.2f} s; all agents ready {r['settled_s']:.1f} s after the last one")
    return done.returncode


sys.exit(main())
