"""Descriptors that are used up at running processes: an agent and a coordinator may open nothing more. What runs goes on with its tokens, what needs one fails by name or waits, and once there are some again all is as before."""
# Waits: for connections that nobody can take.
import os
import resource
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import BUILD, Cluster, DEMO, Failed, SCALE
from resuming import begun, finish
from tap import main, test

STORY = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 300, "temperature": 0, "ignore_eos": True}


class UsedUp:
    """A process that has as many descriptors as it may have."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        self.before = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{self.pid}/fd")), self.before[1]))

    def __exit__(self, *_):
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, self.before)


def text(c, **fields):
    status, body = c.request("POST", "/v1/completions", dict(STORY, **fields))
    assert status == 200, body
    return body["choices"][0]["text"]


@test
def an_agent_without_descriptors_serves_on_and_fails_by_name_what_it_cannot_take():
    for kind in ("tcp", "ucx"):
        with Cluster(agents=2, cores=1, data=kind) as c:
            c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
            whole, pid = text(c), c.agent("a1")["pid"]
            with UsedUp(pid):
                reader = begun(c, STORY, "few")
                try:
                    c.hpctl("deploy", c.weights_of_its_own(1), "--name", "other", "--agents", "a1", "--upload", timeout=60)
                    why = "served"
                except Failed as e:
                    why = e.message
                    assert "a1" in why or "many" in why, e
                print(f"# {kind}: {why}")
                finish(reader, whole)
                assert text(c) == whole and c.agent("a1")["pid"] == pid
            c.take_away("other")
            c.deploy("other", c.weights_of_its_own(1), "--agents", "a1", "--upload", "--compute", "f32")
            assert text(c, model="other") and text(c) == whole and c.agent("a1")["state"] == "running"


@test
def a_neighbour_that_comes_back_is_heard_once_there_are_descriptors():
    for kind in ("tcp", "ucx"):
        with Cluster(agents=2, cores=1, data=kind) as c:
            c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
            whole, pid = text(c), c.agent("a1")["pid"]
            reader = begun(c, STORY, "back")
            with UsedUp(pid):
                c.kill("a0")
                c.hpctl("local", "start", "--agent", "a0")
                time.sleep(2)
                assert c.agent("a1")["pid"] == pid and c.agent("a1")["state"] == "running"
            began = time.monotonic()
            finish(reader, whole)
            c.wait("it serves", lambda: c.request("POST", "/v1/completions", STORY)[0] == 200, 30)
            print(f"# {kind}: served {time.monotonic() - began:.1f} s after there were descriptors")
            assert text(c) == whole


@test
def a_coordinator_without_descriptors_ends_no_stream():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        whole, pid = text(c), c.local()["coordinator"]["pid"]
        reader = begun(c, STORY, "few")
        with UsedUp(pid):
            began = time.monotonic()
            done = subprocess.run([os.path.join(BUILD, "hpctl"), "ps"], env=c.env, capture_output=True, text=True, timeout=60 * SCALE)
            print(f"# ps: exit {done.returncode} after {time.monotonic() - began:.1f} s: {done.stderr.strip()[:150]}")
            assert done.returncode == 0 or done.stderr.strip(), done
            finish(reader, whole)
        c.wait("it answers again", lambda: c.hpctl("ps"), 20)
        assert c.local()["coordinator"]["pid"] == pid and text(c) == whole


def ended(program, *options, most):
    """How a process ends that may open so many files: its exit code and its words."""
    process = subprocess.Popen([os.path.join(BUILD, program), *options], stderr=subprocess.PIPE, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
    try:
        return process.communicate(timeout=10 * SCALE)[1], process.returncode
    finally:
        process.kill()
        process.wait()


@test
def processes_that_may_open_next_to_nothing_say_so():
    with Cluster(agents=1, cores=1) as c:
        token, control = c.hpctl("node", "token", "create")["token"], c.hpctl("context", "ls")[0]["control"]
        for most in (8, 100):
            for program, options in (("hp-agent", ("--join", control, "--token", token, "--dir", os.path.join(c.folder, "few"), "--cores", "any:1", "--memory", "64MiB", "--network", "lo")),
                                     ("hp-coordinator", ("--dir", os.path.join(c.folder, "other"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"))):
                said, code = ended(program, *options, most=most)
                assert code == 1 and f"may open {most} files" in said and "ulimit" in said, (program, most, code, said)


main()
