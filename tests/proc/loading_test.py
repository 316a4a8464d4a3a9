"""Stages that serve while their weights come (hp-agent --serve-while-loading), slowly, to a GPU that is the stand-in for CUDA (tests/cuda_on_cpu)."""
# Waits: for weights that come in their time, and for limits of time.
import contextlib
import glob
import json
import os
import subprocess
import time

from cluster import BUILD, Cluster, DEMO, Failed, SCALE
from gpu_agents import said, start_agent
from tap import main, test


@contextlib.contextmanager
def slow_uploads():
    """A CPU and a GPU whose agent serves while it loads, limits of time a quarter as long: (cluster, file that says how many bytes a second come to the GPU, environment of the agent)."""
    scale = str(SCALE / 4)
    c = Cluster(agents=1, cores=1)
    c.env["HP_TIME_SCALE"] = scale
    rate = os.path.join(c.folder, "rate")
    with c:
        agent = start_agent(c, "gpu", "--device", "cuda:0,mem=64MiB", "--serve-while-loading", CUDA_ON_CPU=f"upload={rate}", HP_TIME_SCALE=scale)
        try:
            c.wait("the agent with a GPU is ready", lambda: c.member("gpu") == "ready")
            yield c, rate
        finally:
            agent.kill()
            agent.wait()


def write(path, text):
    with open(path + ".new", "w") as f:
        f.write(text)
    os.rename(path + ".new", path)


PLACES = ("--layers", "0-13:a0,14-17:gpu", "--compute", "f32", "--max-context", "256", "--max-sequences", "4")
ASKED = ("model", "greedy", "--deployment", "demo", "--ids", "3", "--tokens", "4")


def load_slowly(c, rate):
    """Deploys the demo model, whose weights come to the GPU in three seconds more than a batch of one token may take there of itself; how long that is."""
    d = c.deploy("demo", DEMO, *PLACES)
    c.run("undeploy", "demo")
    limit_s = 5 * SCALE + 10 * d["stages"][1]["planned_compute_s"] / 256
    weights = os.path.getsize(DEMO) / 3 # a quarter of its blocks, and its head
    write(rate, str(weights / (limit_s + 3 * SCALE)))
    c.deploy("demo", DEMO, *PLACES)
    return limit_s


def undisturbed(c):
    """The answer to ASKED of a stage whose weights are all there."""
    c.deploy("ref", DEMO, "--agents", "a0", "--compute", "f32", "--max-context", "256", "--max-sequences", "4")
    ids = c.hpctl("model", "greedy", "--deployment", "ref", *ASKED[4:])["ids"]
    c.run("undeploy", "ref")
    return ids


def stored_weights(c):
    return max(glob.glob(os.path.join(c.folder, "extra", "gpu", "**", "*.gguf"), recursive=True), key=os.path.getsize)


def wait_noticed(c, limit_s):
    """A tensor is looked at when it has come, which may be the last one: then what load_slowly() says, and three seconds more."""
    c.wait("that is noticed when a tensor has come", lambda: "stage_fill_failed" in said(c, "gpu"), 20 + limit_s / SCALE)


def wait_made_anew(c):
    c.wait("the stage is made anew of what another agent has", lambda: c.hpctl("describe", "demo")["generation"] > 1 and c.hpctl("describe", "demo")["state"] == "serving")


@test
def a_prompt_waits_as_long_as_weights_come_and_is_no_error_of_the_plan():
    with slow_uploads() as (c, rate):
        wanted = undisturbed(c)
        limit_s, begun = load_slowly(c, rate), time.monotonic()
        answer = subprocess.Popen([os.path.join(BUILD, "hpctl"), *ASKED, "-o", "json"], env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            c.wait("what is missing is told, and for how long", lambda: c.hpctl("describe", "demo").get("loading", {}).get("left_s", 0) > 0)
            assert "of weights have not come yet, for about" in c.run("describe", "demo").stdout
            said_then, errors = answer.communicate(timeout=60 * SCALE)
        finally:
            answer.kill()
        assert answer.returncode == 0 and json.loads(said_then)["ids"] == wanted, (said_then, errors)
        assert time.monotonic() - begun > limit_s, "not longer than a batch may take of itself"
        d = c.hpctl("describe", "demo")
        assert "loading" not in d and d["losses"]["sequences"] == 0, d
        p = d["prefill"]
        assert p["count"] == 0 and not p.get("first") and p["corrections"] == 0 and p["records"][0]["loading"] and "planned_s" not in p["records"][0], p
        assert "with the wait for weights that were still being loaded" in c.run("describe", "demo").stdout


@test
def a_prompt_whose_weights_stop_coming_fails_and_says_so():
    with slow_uploads() as (c, rate):
        load_slowly(c, rate)
        write(rate, "1")
        try:
            c.hpctl(*ASKED)
            raise AssertionError("it answers without its weights")
        except Failed as e:
            assert e.code == "timeout" and "weights, none of which came for" in e.message, (e.code, e.message)


@test
def weights_that_cannot_be_read_while_they_come_are_noticed_before_anybody_asks():
    with slow_uploads() as (c, rate):
        limit_s = load_slowly(c, rate)
        os.truncate(stored_weights(c), 4096)
        wait_noticed(c, limit_s)
        os.unlink(rate)
        wait_made_anew(c)
        assert len(c.hpctl(*ASKED)["ids"]) == 4


@test
def weights_that_somebody_overwrites_while_they_come_give_no_wrong_answer():
    with slow_uploads() as (c, rate):
        wanted = undisturbed(c)
        limit_s = load_slowly(c, rate)
        stored = stored_weights(c)
        half = os.path.getsize(stored) // 2
        with open(stored, "r+b") as f:  # as long as it was
            f.seek(half)
            f.write(b"\x33" * half)
        wait_noticed(c, limit_s)
        assert "somebody wrote to the file while it is used" in said(c, "gpu"), said(c, "gpu")
        os.unlink(rate)
        wait_made_anew(c)
        assert c.hpctl(*ASKED)["ids"] == wanted


main()
