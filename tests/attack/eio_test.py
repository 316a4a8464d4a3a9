"""Disks that fail under real processes: reads, writes and syncs end with EIO, all of them or some, at an agent and at the coordinator. What needs the disk fails by name or goes another way, what runs goes on with its tokens,
what was acknowledged is there after a restart, and once the disk is well again so is everything."""
# Waits: for agents, coordinators and disks that come back.
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import BUILD, Cluster, DEMO, Failed, SCALE
from resuming import SECRET, Reader
from tap import main, test

SHIM = os.path.join(BUILD, "tests", "attack", "shims", "eio.so")
STORY = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 200, "temperature": 0, "ignore_eos": True}
ALL, WRITES, READS, SYNCS = "rws", "ws", "r", "s"


class Disks:
    """A cluster whose processes see a disk fail below a folder when they are told to."""

    def __init__(self, **options):
        self.file, self.options = f"/tmp/hp-eio-{os.getpid()}", options
        self.well()

    def say(self, text):
        with open(self.file + ".new", "w") as f:
            f.write(text)
        os.rename(self.file + ".new", self.file)

    def well(self):
        self.say("")

    def fail(self, kinds, who, percent=100):
        """From now on, of the files of an agent or of the coordinator."""
        folder = os.path.join(self.cluster.folder, "state", *(["coordinator"] if who == "coordinator" else ["agents", who]))
        assert os.path.isdir(folder), folder
        self.say(f"{kinds} {percent} {folder}/\n")

    def __enter__(self):
        os.environ.update(LD_PRELOAD=SHIM, HP_EIO_FILE=self.file)
        try:
            self.cluster = Cluster(**self.options)
            self.cluster.__enter__()
        finally:
            del os.environ["LD_PRELOAD"], os.environ["HP_EIO_FILE"]
        return self

    def __exit__(self, *why):
        self.well()
        self.cluster.__exit__(*why)
        os.unlink(self.file)


def text(c, **fields):
    status, body = c.request("POST", "/v1/completions", dict(STORY, **fields))
    assert status == 200, body
    return body["choices"][0]["text"]


def deploys(c, model, *options):
    """None, or why not; what is left of a deployment that failed is taken away."""
    try:
        c.hpctl("deploy", model, "--name", "other", "--upload", "--compute", "f32", *options, timeout=60)
        return None
    except Failed as e:
        c.take_away("other")
        return e.message


@test
def an_agent_that_cannot_write_weights_says_so_and_serves_on():
    with Disks(agents=2, cores=1) as d:
        c = d.cluster
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        whole, who = text(c), c.pids()
        for i, kinds in enumerate((WRITES, SYNCS, ALL), 1):
            d.fail(kinds, "a1")
            why = deploys(c, c.weights_of_its_own(i), "--agents", "a0,a1")
            assert why and "a1" in why and "nput/output error" in why, (kinds, why)
            assert text(c) == whole and c.pids() == who, kinds
        d.well()
        assert deploys(c, c.weights_of_its_own(1), "--agents", "a0,a1") is None
        assert text(c, model="other")


@test
def weights_that_an_agent_cannot_read_are_not_copied_and_disturb_nobody():
    with Disks(agents=2, cores=1) as d:
        c = d.cluster
        d.fail(READS, "a0")
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--upload", "--copies", "2")
        whole, who = text(c), c.pids()
        copied = lambda: {s["agent"]: s.get("copy_on") for s in c.hpctl("describe", "demo")["stages"]}  # noqa: E731
        c.wait("a1's layers are copied", lambda: copied()["a1"] == "a0")
        time.sleep(1)
        assert copied()["a0"] is None and text(c) == whole and c.pids() == who, copied()


@test
def spilled_pages_on_a_disk_that_fails_are_computed():
    with Disks(agents=1, cores=1, kv_spill_memory="1MB", kv_spill_disk="64MB") as d:
        c = d.cluster
        c.deploy("demo", DEMO, "--compute", "f32", "--max-sequences", "1", "--max-context", "1024")
        asked = [[5 + (i * k) % 90 for i in range(900)] for k in (1, 3, 7)]
        ask = lambda ids: text(c, prompt=ids, max_tokens=20)  # noqa: E731
        right, who = [ask(ids) for ids in asked], c.pids()
        for kinds, percent in ((WRITES, 100), (READS, 100), (ALL, 40)):
            d.fail(kinds, "a0", percent)
            assert [ask(ids) for ids in asked] == right, (kinds, percent)
            assert c.pids() == who
        d.well()
        assert [ask(ids) for ids in asked] == right


@test
def an_agent_that_starts_on_a_disk_that_fails_says_so_and_comes_back():
    with Disks(agents=2, cores=1) as d:
        c = d.cluster
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--upload")
        whole = text(c)
        c.kill("a1")
        os.environ.update(LD_PRELOAD=SHIM, HP_EIO_FILE=d.file)
        c.env.update(LD_PRELOAD=SHIM, HP_EIO_FILE=d.file)
        try:
            d.fail(ALL, "a1")
            began = time.monotonic()
            try:
                c.hpctl("local", "start", "--agent", "a1", timeout=60)
                print("# it started")
            except Failed as e:
                print(f"# {e.message}")
                assert "nput/output error" in e.message and time.monotonic() - began < 45 * SCALE, e
            d.well()
            if c.agent("a1")["state"] == "dead":
                c.hpctl("local", "start", "--agent", "a1")
        finally:
            del os.environ["LD_PRELOAD"], os.environ["HP_EIO_FILE"], c.env["LD_PRELOAD"], c.env["HP_EIO_FILE"]
        c.wait_serving("demo", 40)
        assert text(c) == whole


@test
def what_the_coordinator_acknowledged_is_there_whatever_its_disk_does():
    with Disks(agents=2, cores=1) as d:
        c, made, refused = d.cluster, ["reader"], 0
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        whole = text(c)
        SECRET.append(c.hpctl("key", "create", "reader")["key"])
        for turn, (kinds, percent, heals) in enumerate(((WRITES, 100, True), (SYNCS, 100, False), (ALL, 100, False), (ALL, 30, True), (SYNCS, 50, False))):
            who, reader = c.pids(), Reader(c.port, STORY, f"k{turn}")
            c.wait("it has begun", lambda: reader.tokens > 2 or reader.failure)
            for i in range(5):
                if i == 1:
                    d.fail(kinds, "coordinator", percent)
                try:
                    c.hpctl("key", "create", f"k{turn}-{i}")
                    made.append(f"k{turn}-{i}")
                except Failed as e:
                    assert "not stored" in e.message or "read only" in e.message, e
                    refused += 1
            reader.join(60 * SCALE)
            assert reader.failure is None and reader.text == whole and reader.connections == 1 and c.pids() == who, (kinds, percent, reader.failure, reader.text[-60:])
            if heals:
                d.well()
                c.wait("changes are taken again", lambda: c.hpctl("node", "token", "create"), 10)
            c.kill("coordinator")
            d.well()
            c.hpctl("local", "start", "--coordinator")
            c.wait_serving("demo", 40)
            there = {k["name"] for k in c.hpctl("key", "ls")}
            assert set(made) <= there, (kinds, percent, set(made) - there)
        print(f"# {len(made)} changes taken, {refused} refused")
        assert refused > 5 and len(made) > 5
        again = Reader(c.port, STORY, "last")
        again.join(60 * SCALE)
        assert again.failure is None and again.text == whole


main()
