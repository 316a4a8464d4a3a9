"""Clocks that jump: the wall clock of coordinator and agents is set days forward and back while streams run, across restarts, and is wrong from the start; and a time namespace whose other clocks begin elsewhere. Streams go on, deadlines hold, no expired token opens the door."""
# Waits: for clocks, deadlines and restarts.
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import BUILD, Cluster, DEMO, Failed, SCALE
from tap import main, skip, test

SHIM = os.path.join(BUILD, "tests", "attack", "shims", "clock.so")
DAY = 86400
PROMPT = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 400, "temperature": 0, "ignore_eos": True}


class Clocked:
    """A cluster of one agent whose processes believe the wall clock of a file."""

    def __init__(self, off=0):
        self.file = f"/tmp/hp-clock-{os.getpid()}"
        self.set(off)

    def set(self, off):
        with open(self.file + ".new", "w") as f:
            f.write(f"{off}\n")
        os.rename(self.file + ".new", self.file)

    def __enter__(self):
        os.environ.update(LD_PRELOAD=SHIM, HP_CLOCK_FILE=self.file)
        try:
            self.cluster = Cluster(agents=2, cores=1)
            self.cluster.__enter__()
        finally:
            del os.environ["LD_PRELOAD"], os.environ["HP_CLOCK_FILE"]
        return self

    def __exit__(self, *why):
        self.cluster.__exit__(*why)
        os.unlink(self.file)

    def joins(self):
        return {m["name"]: c["joins"] for m in self.cluster.hpctl("node", "ls") for c in [self.cluster.hpctl("node", "describe", m["name"])]}

    def join(self, token):
        """An agent that comes with a token: whether it was let in, and what it said."""
        folder = os.path.join(self.cluster.folder, f"extra-{time.monotonic_ns()}")
        agent = subprocess.Popen([os.path.join(BUILD, "hp-agent"), "--join", self.cluster.hpctl("context", "ls")[0]["control"], "--token", token, "--dir", folder, "--cores", "0",
                                  "--memory", "64MiB", "--network", "lo"], env=self.cluster.env, stderr=subprocess.PIPE, text=True)
        patience = threading.Timer(20 * SCALE, agent.kill)
        patience.start()
        said, let_in = "", False
        for line in agent.stderr:  # to its end: who is not let in says why and ends
            said += line
            if " joined " in line:
                let_in = True
                agent.terminate()
        agent.wait()
        patience.cancel()
        return let_in, said


@test
def a_wall_clock_that_jumps_ends_no_stream_and_loses_no_agent():
    with Clocked() as k:
        c = k.cluster
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        ask = lambda: c.request("POST", "/v1/completions", PROMPT)[1]["choices"][0]["text"]
        whole, joined, generation = ask(), k.joins(), c.hpctl("describe", "demo")["generation"]
        for off in (3600, -3600, 3 * DAY, -3 * DAY, 40 * 365 * DAY, -50 * 365 * DAY, 0):
            stream = c.stream("/v1/completions", PROMPT)
            text = ""
            for i, event in enumerate(stream.events()):
                if i == 20:
                    k.set(off)
                assert event is None or "error" not in event, (off, event)
                text += event["choices"][0]["text"] if event and event["choices"] else ""
            assert text == whole, (off, text[-60:])
            time.sleep(1.5)
            assert k.joins() == joined and c.hpctl("describe", "demo")["generation"] == generation, off
            c.hpctl("logs", "coordinator")


@test
def no_expired_token_opens_the_door_whatever_the_clock_does():
    with Clocked() as k:
        c = k.cluster
        long, short, fresh = (c.hpctl("node", "token", "create", "--ttl-hours", ttl)["token"] for ttl in ("24", "1", "1"))
        assert k.join(fresh)[0]
        k.set(2 * 3600)  # as after two hours of sleep
        time.sleep(0.5)
        let_in, said = k.join(short)
        assert not let_in and "expired" in said, said
        k.set(0)
        let_in, said = k.join(short)
        assert not let_in and "expired" in said, said
        k.set(-2 * DAY)  # nor after a restart of the coordinator, where the clock stands before the token was made
        c.kill("coordinator")
        c.hpctl("local", "start", "--coordinator")
        for token in (short, long):
            let_in, said = k.join(token)
            assert not let_in and "clock stands before" in said, said
        k.set(0)
        c.kill("coordinator")
        c.hpctl("local", "start", "--coordinator")
        assert k.join(long)[0]


@test
def a_box_whose_clocks_were_never_set_serves():
    with Clocked(-56 * 365 * DAY) as k:
        c = k.cluster
        c.deploy()
        assert c.request("POST", "/v1/completions", PROMPT)[0] == 200
        assert k.join(c.hpctl("node", "token", "create")["token"])[0]


@test
def clocks_that_count_from_elsewhere_are_as_good():
    """Boxes that ran for years, in a time namespace: the clocks that only go forward begin near the end of 32 bits of seconds, and of one."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--time", "--monotonic", "1", "true"], capture_output=True).returncode != 0:
        skip("time namespaces need root")
    for seconds in (1 << 32, 20 * 365 * DAY):
        with Cluster(agents=1, cores=1) as c:
            wrapped = os.path.join(c.folder, "second")
            for verb in (("local", "up", "--name", "second", "--agents", "2", "--cores", "1", "--dir", wrapped), ("deploy", DEMO, "--name", "demo", "--context", "second"),
                         ("run", "demo", "Hello!", "--max-tokens", "5", "--context", "second"), ("local", "down", "--name", "second")):
                done = subprocess.run(["unshare", "--time", "--monotonic", str(seconds), "--boottime", str(seconds), os.path.join(BUILD, "hpctl"), *verb], env=c.env, capture_output=True,
                                      text=True, timeout=90 * SCALE)
                assert done.returncode == 0, (seconds, verb, done.stderr)


main()
