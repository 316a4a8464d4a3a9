"""`hpctl local`: whoever starts and ends processes of a local cluster at the same time, or is interrupted meanwhile, leaves none that nobody can find and end."""
# Waits: for processes that start and end.
import json
import os
import signal
import subprocess
import tempfile
import time

from cluster import BUILD, DEMO, SCALE, Cluster
from tap import main, test


def daemons(folder):
    """Process ids of the coordinators and agents whose state lies below a folder."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if os.path.basename(words[0]) in ("hp-agent", "hp-coordinator") and any(w.startswith(folder) for w in words):
            found.add(int(pid))
    return found


def begin(c, *args):
    return subprocess.Popen([os.path.join(BUILD, "hpctl"), *args], env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(processes):
    """(exit status, standard error) of each."""
    return [(p.returncode, said) for p in processes for said in [p.communicate(timeout=90 * SCALE)[1]]]


@test
def what_is_started_by_many_at_once_is_written_down_and_runs_once():
    with Cluster(agents=4, cores=1, memory="64MB") as c:
        names = [a["name"] for a in c.local()["agents"]]
        for name in names:
            c.kill(name)
        started = ended([begin(c, "local", "start", "--agent", name) for name in names])
        assert all(rc == 0 for rc, _ in started), started
        assert set(c.pids().values()) == daemons(c.folder), (c.pids(), daemons(c.folder))
        c.kill("a0")
        started = ended([begin(c, "local", "start", "--agent", "a0") for _ in range(3)])
        assert sorted(rc for rc, _ in started) == [0, 1, 1] and sum("a0 is running" in said for _, said in started) == 2, started
        c.kill("coordinator")
        started = ended([begin(c, "local", "start", "--coordinator") for _ in range(3)])
        assert sorted(rc for rc, _ in started) == [0, 1, 1] and sum("the coordinator is running" in said for _, said in started) == 2, started
        assert set(c.pids().values()) == daemons(c.folder)
        # one is on its way while all are ended
        c.kill("a1")
        late = begin(c, "local", "start", "--agent", "a1")
        time.sleep(0.05)
        c.hpctl("local", "down", "--all")
        ended([late])
        assert not daemons(c.folder)


@test
def an_agent_is_started_beside_a_coordinator_that_answers_late():
    with Cluster(agents=1, cores=1, memory="64MB") as c:
        c.kill("a0")
        pid = c.kill("coordinator", signal.SIGSTOP)
        late = begin(c, "local", "start", "--agent", "a0")
        time.sleep(3.5 * SCALE)
        os.kill(pid, signal.SIGCONT)
        assert [rc for rc, _ in ended([late])] == [0], late
        c.kill("a0")
        c.kill("coordinator")
        began = time.monotonic()
        done = c.run("local", "start", "--agent", "a0")
        assert done.returncode and "does not run" in done.stderr and time.monotonic() - began < 10 * SCALE, done


@test
def what_others_start_again_while_there_is_chaos_is_known_to_it():
    with Cluster(agents=2, cores=1, memory="64MB") as c:
        c.deploy("demo", DEMO, "--compute", "f32", "--max-context", "256", "--copies", "2")
        chaos = subprocess.Popen([os.path.join(BUILD, "hpctl"), "chaos", "demo", "-o", "json", "--faults", "stop", "--every", "1", "--hold", "0.2", "--seconds", "5", "--clients", "2", "--prompts", "1"],
                                 env=c.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for name in ("a0", "a1"):
            c.kill(name)
            c.hpctl("local", "start", "--agent", name)
        told = json.JSONDecoder().raw_decode(chaos.communicate(timeout=60 * SCALE)[0])[0]
        assert chaos.returncode == 0 and told["settled_s"] >= 0 and len(told["faults"]) > 1, told
        assert sum("failed" in f for f in told["faults"]) <= 1, told  # one may have met an agent while it was away


class Home:
    """Configuration and state of a user who has no cluster yet."""

    def __enter__(self):
        self.home = tempfile.TemporaryDirectory(prefix="hp-test-")
        self.folder = self.home.name
        self.env = dict(os.environ, HP_CONFIG_DIR=os.path.join(self.folder, "config"))
        return self

    def __exit__(self, *_):
        for pid in daemons(self.folder):
            os.kill(pid, signal.SIGKILL)
        self.home.cleanup()

    def up(self):
        return begin(self, "local", "up", "--agents", "3", "--cores", "1", "--memory", "64MB", "--dir", os.path.join(self.folder, "state"))

    def listed(self):
        return subprocess.run([os.path.join(BUILD, "hpctl"), "local", "ls", "-o", "json"], env=self.env, capture_output=True, text=True).stdout.strip()


def wait_for(what, check):
    until = time.monotonic() + 20 * SCALE
    while not check():
        assert time.monotonic() < until, what
        time.sleep(0.01)


def interrupted(h, which, n):
    """`local up` that is sent the signal once `n` processes run, as often as it is ready first."""
    for _ in range(10):
        up = h.up()
        wait_for("some run", lambda: len(daemons(h.folder)) >= n)
        up.send_signal(which)
        (rc, said), = ended([up])
        if rc != 0:
            break
        assert ended([begin(h, "local", "down", "--all")])[0][0] == 0
    return rc, said


@test
def a_cluster_that_is_interrupted_while_it_starts_is_ended():
    with Home() as h:
        for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for n in (1, 3):  # the coordinator alone, and with agents
                rc, said = interrupted(h, which, n)
                assert rc == 130 and "interrupted" in said and not daemons(h.folder) and h.listed() == "[]", (which, n, rc, said, daemons(h.folder), h.listed())
        # of one that is killed what is left is found
        up = h.up()
        wait_for("two agents run", lambda: len(daemons(h.folder)) >= 3)
        up.kill()
        ended([up])
        assert ended([h.up()])[0][0] == 1 and daemons(h.folder)
        assert ended([begin(h, "local", "down", "--all")])[0][0] == 0 and not daemons(h.folder)
        # two at once make one
        ups = ended([h.up() for _ in range(2)])
        assert sorted(rc for rc, _ in ups) == [0, 1] and any("runs already" in said for _, said in ups), ups
        assert ended([begin(h, "local", "down", "--all")])[0][0] == 0 and not daemons(h.folder)


if __name__ == "__main__":
    main()
