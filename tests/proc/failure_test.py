"""What dies, and what must live on."""
# Waits: for agents that are taken for lost.
import json
import os
import signal
import subprocess
import time

from cluster import BUILD, SCALE, Cluster, DEMO, Failed, ROOT
from tap import main, test


@test
def a_stopped_agent_is_noticed_within_three_seconds():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1")
        pid = c.kill("a1", signal.SIGSTOP)
        stopped = time.monotonic()
        looked = c.wait("a1 is lost", lambda: (lambda began: c.member("a1") == "lost" and began)(time.monotonic()), 4)
        took = looked - stopped  # until the look that found it began
        assert took < 3 * SCALE + 0.3, f"{took:.1f} s"
        assert next(a for a in c.local()["agents"] if a["name"] == "a1")["state"] == "stopped"
        os.kill(pid, signal.SIGCONT)
        c.wait("a1 is ready again", lambda: c.member("a1") == "ready", 15)
        c.wait_serving("demo")


@test
def a_deployment_that_is_ending_is_not_named_as_one_that_is_there():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1")
        c.kill("a1", signal.SIGSTOP)  # which does not say that it has let go of its stage
        ends = subprocess.Popen([os.path.join(BUILD, "hpctl"), "undeploy", "demo"], env=c.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        status, body = c.wait("it is there no more", lambda: next((a for a in [c.chat("demo", "Hello")] if a[0] == 404), None))
        assert body["error"]["message"] == 'no model "demo" is deployed here; there is none', body
        c.kill("a1", signal.SIGCONT)
        assert ends.wait(60 * SCALE) == 0


@test
def the_rest_serves_on_when_an_agent_stays_away():
    with Cluster(agents=3, cores=1) as c:
        c.deploy("demo", DEMO)
        used = {s["agent"] for s in c.hpctl("describe", "demo")["stages"]}
        c.kill(sorted(used)[0])
        c.wait("it was noticed", lambda: c.hpctl("describe", "demo")["generation"] > 1 or c.member(sorted(used)[0]) == "lost", 10)
        c.wait_serving("demo")
        with open(os.path.join(ROOT, "examples", "demo-model", "answers.json")) as f:
            question, answer = json.load(f)[0]
        assert c.answer("demo", question, max_tokens=60) == answer


@test
def a_killed_coordinator_comes_back_to_serving_deployments():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        whole = c.answer("demo", "Tell me a story.", max_tokens=30)
        for _ in range(3):
            c.kill("coordinator")
            try:
                c.hpctl("ps")
                raise AssertionError("a dead coordinator answered")
            except Failed as e:
                assert e.rc == 3, e
            c.hpctl("local", "start", "--coordinator")
            c.wait_serving("demo")
            assert c.answer("demo", "Tell me a story.", max_tokens=30) == whole
        for folder in ("a0", "a1"):
            with open(os.path.join(c.folder, "state", "agents", folder, "log")) as f:
                loads = sum("stage_loaded" in line for line in f)
            assert loads == 1, f"{folder} loaded {loads} times"


main()
