"""Memory that runs out under real processes: the kernel kills an agent and a coordinator for what their control group has used up, and allocations fail at agents and coordinator. Streams go on with their tokens, requests fail
by name or wait, processes live on, and an agent that was told no limit keeps to its group's. (Every allocation, the small ones too, fails in tests/unit/*faults_test.c: libzmq ends a process that has none for a message's buffer.)"""
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import BUILD, Cluster, DEMO, Failed, SCALE, ended
from resuming import begun, finish
from tap import main, skip, test

SHIM = os.path.join(BUILD, "tests", "attack", "shims", "memory.so")
MIB = 1 << 20
STORY = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1900, "temperature": 0, "ignore_eos": True}


class Group:
    """A control group with a limit of memory, of either version."""

    def __enter__(self):
        home = next((g for g in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup") if os.path.exists(g + "/memory.limit_in_bytes") or os.path.exists(g + "/memory.stat")), None)
        try:
            self.path = os.path.join(home, f"hp-test-{os.getpid()}")
            os.mkdir(self.path)
            self.file = "memory.limit_in_bytes" if os.path.exists(os.path.join(self.path, "memory.limit_in_bytes")) else "memory.max"
            self.limit(4 << 30)
        except (OSError, TypeError):
            skip("no control group of one's own can be made here")
        return self

    def say(self, file, what):
        with open(os.path.join(self.path, file), "w") as out:
            out.write(str(what))

    def limit(self, limit_bytes):
        self.say(self.file, limit_bytes)

    def take(self, pid):
        self.say("cgroup.procs", pid)

    def used(self):
        with open(os.path.join(self.path, "memory.usage_in_bytes" if self.file == "memory.limit_in_bytes" else "memory.current")) as f:
            return int(f.read())

    def exhaust(self, victim, begin):
        """Somebody else in the group takes memory until the kernel kills the one whom it kills first. What `begin` gave, which is asked when all else is ready: an answer that it begins is not over by then."""
        hog = subprocess.Popen([sys.executable, "-c", "import sys\nheld = []\nprint(flush=True)\nfor line in sys.stdin: held.append(bytearray(1 << 20))"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            hog.stdout.readline()
            with open(f"/proc/{victim}/oom_score_adj", "w") as out:
                out.write("1000")
            self.take(victim)
            self.take(hog.pid)
            begun_before = begin()
            self.limit(self.used() + 16 * MIB)
            until = time.monotonic() + 20 * SCALE
            while not ended(victim):
                assert time.monotonic() < until, f"nobody was killed at {self.used()} bytes"
                hog.stdin.write("\n" * 4)
                hog.stdin.flush()
                time.sleep(0.01)
            return begun_before
        finally:
            self.limit(4 << 30)
            hog.kill()
            hog.communicate()

    def __exit__(self, *_):
        until = time.monotonic() + 5
        while os.path.exists(self.path):
            try:
                os.rmdir(self.path)
            except OSError:  # somebody dies of it just now
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def text(c, **fields):
    status, body = c.request("POST", "/v1/completions", dict(STORY, **fields))
    assert status == 200, body
    return body["choices"][0]["text"]


@test
def an_agent_that_the_kernel_kills_for_its_memory_ends_no_stream():
    with Group() as group, Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--copies", "2")
        c.wait("all is copied", lambda: all("copy_on" in s for s in c.hpctl("describe", "demo")["stages"]))
        whole = text(c)
        reader = group.exhaust(c.agent("a1")["pid"], lambda: begun(c, STORY, "killed"))
        finish(reader, whole)
        print(f"# a pause of {reader.pause:.2f} s")
        assert reader.connections == 1
        c.wait("it is named", lambda: c.member("a1") == "lost")
        c.hpctl("local", "start", "--agent", "a1")
        assert text(c) == whole


@test
def a_coordinator_that_the_kernel_kills_for_its_memory_ends_no_stream():
    with Group() as group, Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        whole = text(c)
        reader = group.exhaust(c.pids()["coordinator"], lambda: begun(c, STORY, "killed"))
        c.hpctl("local", "start", "--coordinator")
        finish(reader, whole)
        c.wait_serving()  # the answer was whole where agents had written it to its end, and they may not be back
        again = text(c)
        assert reader.connections == 2, reader.connections
        assert again == whole, (again, whole)


@test
def an_agent_in_a_small_group_keeps_to_it_under_load():
    """It is told no limit: what it takes for weights, keys and values, buffers and libraries stays within what its group has."""
    limit = 220 * MIB
    with Group() as group, Cluster(agents=1, cores=1) as c:
        group.limit(limit)
        folder = os.path.join(c.folder, "small")
        command = [os.path.join(BUILD, "hp-agent"), "--join", c.hpctl("context", "ls")[0]["control"], "--token", c.hpctl("node", "token", "create")["token"], "--name", "small", "--dir", folder, "--cores",
                   "any:1", "--network", "lo"]
        agent = subprocess.Popen(["sh", "-c", f"echo $$ > {group.path}/cgroup.procs && exec \"$@\"", "sh", *command], stderr=subprocess.DEVNULL)
        try:
            c.wait("it is ready", lambda: c.member("small") == "ready")
            node = next(m for m in c.hpctl("node", "ls") if m["name"] == "small")
            c.deploy("demo", DEMO, "--agents", "small", "--compute", "f32", "--upload")
            whole = text(c)
            statuses = []

            def ask(i):
                for k in range(2):
                    statuses.append(c.request("POST", "/v1/completions", dict(STORY, prompt=[5 + (j * (i + 3 + k)) % 90 for j in range(1500)], max_tokens=100))[0])

            threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert agent.poll() is None, "it was killed"
            assert statuses.count(200) > 12 and set(statuses) <= {200, 429, 503}, statuses
            assert text(c) == whole
            with open(os.path.join(group.path, "memory.max_usage_in_bytes" if group.file == "memory.limit_in_bytes" else "memory.peak")) as f:
                print(f"# {int(f.read()) / MIB:.0f} of {limit / MIB:.0f} MiB at most; {node.get('memory_bytes', 0) / MIB:.0f} MiB are its share")
        finally:
            agent.terminate()
            agent.wait(20 * SCALE)


class Short:
    """A cluster in which allocations fail when they are told to: some of those from a size on."""

    def __init__(self, **options):
        self.file, self.options = f"/tmp/hp-memory-{os.getpid()}", options
        self.fail(0, 0)

    def fail(self, percent, least_bytes):
        with open(self.file + ".new", "w") as f:
            f.write(f"{percent} {least_bytes}\n")
        os.rename(self.file + ".new", self.file)

    def __enter__(self):
        os.environ.update(LD_PRELOAD=SHIM, HP_MEMORY_FILE=self.file)
        try:
            self.cluster = Cluster(**self.options)
            self.cluster.__enter__()
        finally:
            del os.environ["LD_PRELOAD"], os.environ["HP_MEMORY_FILE"]
        del self.cluster.env["LD_PRELOAD"]  # of verbs from here on
        return self

    def __exit__(self, *why):
        self.fail(0, 0)
        self.cluster.__exit__(*why)
        os.unlink(self.file)


def running(c):
    state = c.local()
    return state["coordinator"]["state"] == "running" and all(a["state"] == "running" for a in state["agents"])


@test
def allocations_that_fail_fail_requests_and_end_nobody():
    with Short(agents=2, cores=1) as s:
        c, outcomes = s.cluster, {}
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        whole = text(c)
        for percent, least, n in ((100, 1 << 20, 4), (100, 256 << 10, 4), (30, 64 << 10, 2)):
            s.fail(percent, least)
            for i in range(n):
                try:
                    asked = dict(STORY, max_tokens=40) if i % 2 else dict(STORY, prompt=[5 + (j * (i + 3)) % 90 for j in range(900)], max_tokens=20)
                    status, body = c.request("POST", "/v1/completions", asked, timeout=10)
                except OSError as e:  # it waits, until its deadline
                    status, body = type(e).__name__, None
                assert status != 200 or i % 2 == 0 or whole.startswith(body["choices"][0]["text"]), body
                outcomes[percent, least, status] = outcomes.get((percent, least, status), 0) + 1
            if n == 4:
                try:
                    c.hpctl("deploy", DEMO, "--name", "second", "--agents", "a1,a0", timeout=20)
                    c.hpctl("undeploy", "second")
                except Failed as e:
                    print(f"# {percent} % from {least} bytes: deploy said: {e.message[:150]}")
            s.fail(0, 0)
            assert running(c), (percent, least, c.local())
            c.take_away("second")
            c.wait("it serves again", lambda: c.request("POST", "/v1/completions", STORY)[0] == 200, 30)
            assert text(c) == whole, (percent, least)
        print(f"# {outcomes}")


main()
