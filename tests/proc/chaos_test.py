"""`hpctl chaos`: processes are killed, stopped and slowed while clients ask, and what they saw is told; the cluster is as before."""
import json
import os
import signal
import subprocess

from cluster import BUILD, DEMO, SCALE, Cluster, Failed
from tap import main, test


def chaos(c, *args):
    done = subprocess.run([os.path.join(BUILD, "hpctl"), "chaos", "demo", "-o", "json", *args], env=c.env, capture_output=True, text=True, timeout=120 * SCALE)
    assert done.stdout, done.stderr
    return done.returncode, json.JSONDecoder().raw_decode(done.stdout)[0]


def states(c):
    ls = c.local()
    return {a["name"]: a["state"] for a in ls["agents"]} | {"coordinator": ls["coordinator"]["state"]}


@test
def clients_see_nothing_of_agents_that_are_killed_stopped_slowed_or_full():
    with Cluster(agents=3, cores=1, memory="24MB") as c:
        c.deploy("demo", DEMO, "--compute", "f32", "--max-context", "512", "--upload", "--copies", "2")
        c.wait("all is copied", lambda: all("copy_on" in s and s["copy_on"] != s["agent"] for s in c.hpctl("describe", "demo")["stages"]))
        few = ("--clients", "6", "--prompts", "3", "--answer-tokens", "60..120", "--every", "2", "--hold", "0.5", "--seconds", "8", "--seed", "3")
        script = json.loads(c.run("chaos", "demo", *few, "--dry-run", "-o", "json").stdout)
        rc, r = chaos(c, *few)
        keys = ("fault", "of", "at_s", "for_s")
        assert [[f[k] for k in keys] for f in r["faults"]] == [[f[k] for k in keys] for f in script] and len(script) >= 2, (script, r)
        a = r["answers"]
        assert rc == 0 and a["whole"] > 6 and a["different"] == a["refused"] == a["failed"] == a["open"] == 0 and r["causes"] == [], r
        assert all("failed" not in f and f["healed_s"] > f["begun_s"] >= f["at_s"] for f in r["faults"]), r
        assert r["settled_s"] >= 0 and r["pause"]["longest_s"] >= r["pause"]["median_s"], r
        assert set(states(c).values()) == {"running"}, states(c)

        # Ctrl-C heals what lasts
        run = subprocess.Popen([os.path.join(BUILD, "hpctl"), "chaos", "demo", "-o", "json", "--faults", "stop", "--every", "0.1", "--hold", "30", "--seconds", "60", "--clients", "1", "--prompts", "1"],
                               env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        c.wait("one is stopped", lambda: "stopped" in states(c).values())
        run.send_signal(signal.SIGINT)
        out, said = run.communicate(timeout=60 * SCALE)
        r = json.JSONDecoder().raw_decode(out)[0]
        assert r["interrupted"] and len([f for f in r["faults"] if "healed_s" in f]) == 1, (r, said)
        assert set(states(c).values()) == {"running"}, states(c)

        # so does whoever kills it, and meanwhile nobody else disturbs the same cluster
        def file_bytes(name):
            with open(f"/proc/{c.pids()[name]}/limits") as limits:
                return next(line.split()[3] for line in limits if line.startswith("Max file size"))

        most = file_bytes("a0")
        for fault, disturbed in (("stop", lambda: "stopped" in states(c).values()), ("disk", lambda: "0" in map(file_bytes, ("a0", "a1", "a2")))):
            run = subprocess.Popen([os.path.join(BUILD, "hpctl"), "chaos", "demo", "-o", "json", "--faults", fault, "--every", "0.1", "--hold", "30", "--seconds", "60", "--clients", "1", "--prompts", "1"],
                                   env=c.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            c.wait("one is disturbed", disturbed)
            second = c.run("chaos", "demo")
            assert second.returncode == 1 and "another hpctl chaos" in second.stderr, second
            run.kill()
            run.wait()
            c.wait("all is as before", lambda: set(states(c).values()) == {"running"} and {file_bytes(a) for a in ("a0", "a1", "a2")} == {most}, 5)

        # of a coordinator that is killed they see nothing either, as long as they ask again
        coordinator = ("--faults", "kill-coordinator", "--every", "1", "--hold", "1", "--seconds", "3", "--clients", "2", "--prompts", "1")
        rc, r = chaos(c, *coordinator)
        a = r["answers"]
        assert rc == 0 and r["faults"] and a["whole"] > 2 and a["different"] == a["refused"] == a["failed"] == a["open"] == 0, (rc, r)

        # nor of one that can store nothing
        rc, r = chaos(c, "--faults", "disk-coordinator", "--every", "1", "--hold", "1", "--seconds", "4", "--clients", "2", "--prompts", "1")
        a = r["answers"]
        assert rc == 0 and r["faults"] and a["whole"] > 2 and a["different"] == a["refused"] == a["failed"] == a["open"] == 0, (rc, r)
        assert c.hpctl("node", "token", "create")["token"]

        # an error that clients see is the verb's, too
        rc, r = chaos(c, *coordinator, "--no-resume")
        assert rc == 1 and r["answers"]["failed"] > 0 and r["causes"] and r["answers"]["different"] == 0, (rc, r)
        for args, rc, says in ((("nope",), 4, "nope"), (("demo", "--faults", "flood"), 2, "flood"), (("demo", "--seconds", "1"), 1, "no room"), (("demo", "--clients", "0"), 2, "--clients")):
            try:
                c.hpctl("chaos", *args)
                raise AssertionError(f"{args} was taken")
            except Failed as e:
                assert e.rc == rc and says in e.message, (args, e)


main()
