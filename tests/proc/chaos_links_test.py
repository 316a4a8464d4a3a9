"""`hpctl chaos` with links: what an agent sends to others is late, lost and sent again, or held, while clients ask. Answers are the same, the cluster notices, and nothing stays."""
# Waits: for links that are named as late, and measured anew.
import itertools
import json
import os
import re
import signal
import subprocess
import time

from cluster import BUILD, DEMO, SCALE, Cluster
from tap import main, test


def chaos(c, *args):
    done = subprocess.run([os.path.join(BUILD, "hpctl"), "chaos", "demo", "-o", "json", *args], env=c.env, capture_output=True, text=True, timeout=120 * SCALE)
    assert done.stdout, done.stderr
    return done.returncode, json.JSONDecoder().raw_decode(done.stdout)[0]


def heard(c):
    """How often agents were told that their links are late, and how often that was over, by their logs."""
    said = ""
    for name in ("a0", "a1", "a2"):
        with open(os.path.join(c.folder, "state", "agents", name, "log")) as log:
            said += log.read()
    return len(re.findall(r"links_late ", said)), len(re.findall(r"links_on_time ", said))


@test
def links_that_are_late_lose_or_hang_change_no_answer_and_are_as_before_afterwards():
    with Cluster(agents=3, cores=1, memory="24MB") as c:
        c.deploy("demo", DEMO, "--compute", "f32", "--max-context", "512", "--agents", "a0,a1,a2", "--prefix-cache", "off", "--speculate", "off")
        few = ("--clients", "2", "--prompts", "2", "--answer-tokens", "30..60", "--every", "1.5", "--seconds", "6", "--seed", "3")

        def whole(*args):
            rc, r = chaos(c, *few, *args)
            a = r["answers"]
            assert rc == 0 and a["whole"] > 2 and a["different"] == a["refused"] == a["failed"] == a["open"] == 0 and r["causes"] == [], r
            assert len(r["faults"]) >= 2 and all("failed" not in f and f["healed_s"] > f["begun_s"] for f in r["faults"]), r
            return r["faults"]

        # every token passes every agent: each fault shows in the pace, and a hang in a pause as long as itself (less a token that was past it),
        # but not where both clients were before their first token, which counts as no pause
        for fault in whole("--faults", "delay", "--delay", "150ms", "--hold", "1.2"):
            assert fault["late_s"] == 0.15 and fault["pause_s"] > 0.15, fault
        hangs = whole("--faults", "hang", "--hold", "1")
        for fault in hangs:
            assert "late_s" not in fault and (fault["pause_s"] > fault["for_s"] - 0.1 or fault["pause_s"] == 0), fault
        assert any(fault["pause_s"] for fault in hangs), hangs
        c.wait("agents were told of each, and that it was over", lambda: heard(c)[0] == heard(c)[1] >= 4, 5)
        begun, _ = heard(c)

        losses = whole("--faults", "loss", "--loss", "10", "--hold", "1.2")
        for fault in losses:
            assert fault["lost"] == 0.1 and (fault["pause_s"] > 0.19 or fault["pause_s"] == 0), fault
        assert any(fault["pause_s"] for fault in losses), losses
        begun, over = heard(c)
        assert begun == over, (begun, over)

        # an hpctl that is killed leaves no fault behind
        run = subprocess.Popen([os.path.join(BUILD, "hpctl"), "chaos", "demo", "--faults", "hang", "--every", "0.1", "--hold", "1.2", "--seconds", "60", "--clients", "1", "--prompts", "1"],
                               env=c.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        c.wait("a link hangs", lambda: heard(c)[0] > begun)
        run.kill()
        run.wait()
        c.wait("it hangs no more", lambda: heard(c)[0] == heard(c)[1], 5)
        assert c.answer("demo", "Tell me a story.", max_tokens=20)

        # the cluster notices, while it lasts and when it is over
        def disturbed(*args):
            return subprocess.Popen([os.path.join(BUILD, "hpctl"), "chaos", "demo", "-o", "json", *args, "--every", "0.2", "--hold", "60", "--seconds", "100", "--clients", "2"],
                                    env=c.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

        def ends(run):
            run.send_signal(signal.SIGINT)
            r = json.JSONDecoder().raw_decode(run.communicate(timeout=60 * SCALE)[0])[0]
            assert r["interrupted"] and r["answers"]["different"] == r["answers"]["failed"] == 0 and len([f for f in r["faults"] if "healed_s" in f]) == 1, r

        began, run = time.monotonic(), disturbed("--faults", "loss", "--loss", "5")
        c.wait("a link loses packets", lambda: max(link.get("loss", 0) for link in c.hpctl("topo")["links"]) > 0.005, 30)
        print(f"# packets that are lost are named after {time.monotonic() - began:.1f} s")
        assert "of its packets" in c.run("topo").stdout
        ends(run)

        run = disturbed("--faults", "delay", "--delay", "60ms", "--answer-tokens", "4..8")

        def late_s():
            return max((link.get("late_s", 0) for link in c.hpctl("topo")["links"]), default=0)

        began = time.monotonic()
        c.wait("a link is late", lambda: late_s() > 0.02, 30)  # a measurement tells half of what frames take there and back
        print(f"# named after {time.monotonic() - began:.1f} s")
        assert "later than usual" in c.run("topo").stdout
        ends(run)
        began = time.monotonic()
        ids = itertools.count()

        def on_time():
            prompt = [5 + (next(ids) * 37 + i) % 90 for i in range(80)]
            assert c.request("POST", "/v1/completions", {"model": "demo", "prompt": prompt, "max_tokens": 1})[0] == 200
            return late_s() == 0

        c.wait("all are on time", on_time, 60)
        print(f"# on time again after {time.monotonic() - began:.1f} s")


@test
def only_agents_of_local_clusters_let_anybody_disturb_their_links():
    for args in (("--join", "192.0.2.1:7070"), ("--join", "127.0.0.1:7070", "--network", "eth0")):
        done = subprocess.run([os.path.join(BUILD, "hp-agent"), *args, "--chaos-links"], capture_output=True, text=True, timeout=20 * SCALE)
        assert done.returncode == 2 and "loopback" in done.stderr, done.stderr
    for delay in ("50", "0ms", "x"):
        done = subprocess.run([os.path.join(BUILD, "hpctl"), "chaos", "demo", "--faults", "delay", "--delay", delay], capture_output=True, text=True, timeout=20 * SCALE)
        assert done.returncode == 2 and "--delay" in done.stderr, done.stderr


main()
