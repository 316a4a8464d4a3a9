"""Processes that are stopped (SIGSTOP): agents in the middle of a stream, for a while, so that all goes on, and for longer than anybody waits for; hpctl in the middle of an upload. What was asked ends
with success or a reason, nobody dies of it, and once all go on the deployment serves as before."""
# Waits: while processes stand still.
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import BUILD, Cluster, DEMO, SCALE
from tap import main, test

SEED = int(os.environ.get("HP_SEED", "47"))
PROMPT = {"model": "demo", "prompt": "Once upon a time", "temperature": 0, "max_tokens": 40, "ignore_eos": True}


def text(c, tokens=40):
    """The answer; None where there is none now."""
    status, body = c.request("POST", "/v1/completions", dict(PROMPT, max_tokens=tokens), timeout=60)
    return body["choices"][0]["text"] if status == 200 else None


class Verb:
    """hpctl in the background: how it ended, and when."""

    def __init__(self, c, *args):
        self.began = time.monotonic()
        self.process = subprocess.Popen([os.path.join(BUILD, "hpctl"), *args, "-o", "json"], env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, seconds):
        try:
            out, said = self.process.communicate(timeout=seconds * SCALE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise AssertionError(f"seed {SEED}: {self.process.args[1:]} went on for {seconds} s")
        assert self.process.returncode >= 0, (self.process.returncode, said)
        assert self.process.returncode == 0 or "error" in out or said.strip(), (self.process.returncode, out, said)
        return self.process.returncode


def stopped(pid, seconds):
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def alive(who):
    for name, pid in who.items():
        assert os.path.exists(f"/proc/{pid}"), f"seed {SEED}: {name} is gone"


@test
def streams_of_agents_that_stand_still_go_on_whole():
    with Cluster(agents=3, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1,a2", "--compute", "f32")
        body = dict(PROMPT, max_tokens=300)
        whole = c.request("POST", "/v1/completions", body)[1]["choices"][0]["text"]
        who = c.pids()
        for victim in ("a0", "a1", "a2"):
            for seconds in (1.0, 6.0):
                stream = c.stream("/v1/completions", body, timeout=60)
                stopper, got, error, done = None, "", None, False
                for n, event in enumerate(stream.events()):
                    if n == 10:
                        stopper = threading.Thread(target=stopped, args=(who[victim], seconds))
                        stopper.start()
                    if event is None:
                        done = True
                    elif "error" in event:
                        error = event["error"]["message"]
                    elif event["choices"]:
                        got += event["choices"][0]["text"]
                stopper.join()
                print(f"# {victim} stopped for {seconds} s in a stream: {error or 'whole'}")
                assert done and not error and got == whole, (SEED, victim, seconds, error, got[-60:])
                alive(who)
                c.wait("it serves again as before", lambda: (text(c, 300) or "") == whole, 10)


@test
def hpctl_that_stands_still_holds_nobody_up():
    """An upload whose hpctl was stopped: others deploy and serve; when it goes on, so does its deployment, or it says why not."""
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0")
        for i, when in enumerate((0.05, 0.1, 0.2, 0.4)):
            upload = Verb(c, "deploy", c.weights_of_its_own(100 + i), "--name", "slow", "--agents", "a1", "--upload")
            time.sleep(when)
            if upload.process.poll() is None:
                os.kill(upload.process.pid, signal.SIGSTOP)
            began = time.monotonic()
            assert text(c) and time.monotonic() - began < 5 * SCALE
            c.deploy("other", DEMO, "--agents", "a0,a1")
            c.hpctl("undeploy", "other")
            time.sleep(2)
            if upload.process.poll() is None:
                os.kill(upload.process.pid, signal.SIGCONT)
            code = upload.end(60)
            print(f"# hpctl stopped after {when} s: exit {code}")
            c.take_away("slow")


main()
