"""Hostile clients of the control channel: who is not known is heard briefly, and disturbs nobody."""
import collections
import json
import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import BUILD, ROOT, Cluster, DEMO, SCALE
from tap import main, test

MIB = 1 << 20


def rogue_args(c, *args):
    token = c.hpctl("node", "token", "create")["token"]
    address = c.hpctl("context", "ls")[0]["control"]
    return [os.path.join(BUILD, "tests", "attack", "rogue"), address, token.split("-")[1], *map(str, args)]


def rogue(c, *args, within_s=3):
    """What it said and heard; "nothing" where there was no answer in time."""
    return subprocess.run(rogue_args(c, *args), env=dict(os.environ, ROGUE_SECONDS=str(within_s)), capture_output=True, text=True, errors="replace", timeout=60 * SCALE)


def memory(pid, key):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key + ":"))


def joins(c):
    return {m["name"]: c.hpctl("node", "describe", m["name"])["joins"] for m in c.hpctl("node", "ls")}


class Streams:
    """A good client's answers, one after the other, their tokens timed as they come."""

    def __init__(self, c):
        self.gaps, self.errors, self.ended = [], [], False
        self.thread = threading.Thread(target=self.run, args=(c,))
        self.thread.start()

    def run(self, c):
        while not self.ended:
            last = time.monotonic()
            stream = c.stream("/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 200, "temperature": 0})
            for event in stream.events():
                self.gaps.append(time.monotonic() - last)
                last = time.monotonic()
                if event is not None and "error" in event:
                    self.errors.append(event["error"])
            stream.close()

    def end(self):
        self.ended = True
        self.thread.join()


def disturb(c, attack):
    """How much the coordinator grew at most, and the worst gap in the streams, while `attack` went on."""
    pid = c.local()["coordinator"]["pid"]
    before, joined = memory(pid, "VmRSS"), joins(c)
    with open(f"/proc/{pid}/clear_refs", "w") as f:
        f.write("5")  # the high-water mark begins anew
    good = Streams(c)
    time.sleep(0.2)
    attack()
    time.sleep(0.2)
    good.end()
    assert good.gaps and not good.errors, good.errors
    assert joins(c) == joined, (joins(c), joined)
    return memory(pid, "VmHWM") - before, max(good.gaps)


def disturb_least(c, attack):
    """disturb() once of three times: a box that is busy with others makes gaps, too."""
    for _ in range(3):
        grown, gap = disturb(c, attack)
        if gap < 1 * SCALE:
            break
    return grown, gap


def agent_key(c, name):
    for folder, _, files in os.walk(c.folder):
        if "agent.key" in files and os.path.basename(folder) == name:
            return os.path.join(folder, "agent.key")
    raise AssertionError("no key of " + name)


@test
def a_message_of_100_mib_from_a_stranger_costs_nothing():
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        said = []
        grown, gap = disturb_least(c, lambda: said.append(rogue(c, "bomb", 100 * MIB, "heartbeat").stdout))
        print(f"# grown by {grown / MIB:.0f} MiB, worst gap {gap:.2f} s, {said}")
        assert "nothing" in said[0], said
        assert grown < 50 * MIB and gap < 1 * SCALE, (grown, gap)


@test
def a_message_of_60_mib_from_a_stranger_is_refused_unread():
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        said = []
        grown, gap = disturb_least(c, lambda: said.append(rogue(c, "bomb", 60 * MIB, "join", within_s=30).stdout))
        print(f"# grown by {grown / MIB:.0f} MiB, worst gap {gap:.2f} s")
        assert "65536 are the limit for this sender" in said[0], said
        assert grown < 120 * MIB and gap < 1 * SCALE, (grown, gap)


@test
def a_message_of_60_mib_from_an_agent_is_refused_unread():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0")
        key = agent_key(c, "a1")
        c.kill("a1")
        for size in (60 * MIB, 19 * MIB):
            said = []
            c.wait("a1 is lost", lambda: c.member("a1") == "lost")
            grown, gap = disturb_least(c, lambda: said.append(rogue(c, "bomb", size, "heartbeat", key, within_s=30).stdout))
            print(f"# {size // MIB} MiB: grown by {grown / MIB:.0f} MiB, worst gap {gap:.2f} s")
            assert "are the limit" in said[0], said
            assert grown < 2 * size and gap < 1 * SCALE, (grown, gap)


@test
def three_hundred_strangers_keep_nobody_out():
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        flood = subprocess.Popen(rogue_args(c, "flood", 300), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert flood.stdout.readline() == "sent\n"
        _, gap = disturb_least(c, lambda: c.hpctl("ps"))
        print(f"# worst gap {gap:.2f} s")
        assert gap < 1 * SCALE, gap
        flood.stdin.close()
        flood.wait(60)


def connections(port):
    """That are established at the coordinator's end, by the port of the other."""
    lines = subprocess.run(["ss", "-tnH", "state", "established", f"( sport = :{port} )"], capture_output=True, text=True).stdout.splitlines()
    return {int(line.split()[-1].rsplit(":", 1)[1]) for line in lines}


@test
def strangers_that_stay_are_shut_out_and_members_stay():
    """Three hundred proven keys that nobody knows would hold their connections for ever: none of these lasts, whereas those of members do."""
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1")
        port = c.hpctl("context", "ls")[0]["control"].rsplit(":", 1)[1]
        joined, token = joins(c), c.hpctl("node", "token", "create")["token"]
        members = connections(port)
        flood = subprocess.Popen(rogue_args(c, "flood", 300), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert flood.stdout.readline() == "sent\n"
        good, since = Streams(c), {}
        most, until = 0, time.monotonic() + 15 * SCALE
        while time.monotonic() < until:
            now = connections(port)
            since = {p: since.get(p, time.monotonic()) for p in now - members}
            most = max([most, *(time.monotonic() - began for began in since.values())])
            time.sleep(0.2)
        agent = subprocess.Popen([os.path.join(BUILD, "hp-agent"), "--join", f"127.0.0.1:{port}", "--token", token, "--dir", os.path.join(c.folder, "late"), "--name", "late", "--network", "lo",
                                  "--memory", "64MiB"], stderr=subprocess.DEVNULL, env=c.env)
        try:
            c.wait("an agent joins beside them", lambda: c.member("late") == "ready", 30)
        finally:
            agent.terminate()
            agent.wait(20)
        good.end()
        print(f"# a stranger's connection lasted {most:.1f} s at most; worst gap {max(good.gaps):.2f} s")
        assert not good.errors, good.errors
        assert {name: n for name, n in joins(c).items() if name != "late"} == joined
        assert most < 12 * SCALE, most
        flood.stdin.close()
        flood.wait(60)


def words_of_the_coordinator():
    """The verbs that it knows, and the names of what they look for in their arguments, as its source has them."""
    verbs, keys = set(), set()
    for name in sorted(os.listdir(os.path.join(ROOT, "coordinator"))):
        if name.endswith(".c"):
            with open(os.path.join(ROOT, "coordinator", name)) as f:
                text = f.read()
            verbs.update(re.findall(r'\{"([a-z.]+)", verb_\w+,', text))
            keys.update(re.findall(r'(?:arguments|options), "(\w+)"|admin_\w+\((?:c, )?q, "(\w+)"', text))
    return sorted(verbs), sorted({a or b for a, b in keys} | {"layers", "agents", "plan", "slices", "compute", "context"})


def hostile_values():
    return ["null", "true", "-1", "0", "9223372036854775807", "1e308", "-0.0", '""', json.dumps("\x1b[2J\r\n" + "\u00e9" * 300), json.dumps("x" * 100000), "[]", "{}", "[" * 1000 + "]" * 1000,
            json.dumps([{}] * 10000), json.dumps({str(i): i for i in range(5000)}), json.dumps("../../../../etc/passwd"), json.dumps("demo")]


@test
def nothing_that_an_admin_says_ends_anything():
    """Whoever holds the admin key may do everything; but in the verbs' own terms. Every verb gets values of every type, size and depth for whatever it looks for."""
    verbs, keys = words_of_the_coordinator()
    assert {"deploy", "token.create", "logits", "profile.rm", "topo"} <= set(verbs), verbs
    lines = []
    for verb in verbs + ["", "nonsense", "x" * 100000]:
        for text in ("", "{", "[]", "null", '{"name": "\\u0000"}', '{"a": ' * 3000 + "1" + "}" * 3000, json.dumps({"x": "y" * 4000000})):
            lines.append(f"{verb}\t{text}\t0")
        for value in hostile_values():
            lines.append(f"{verb}\t{{" + ", ".join(f'"{k}": {value}' for k in keys) + "}\t0")
        lines.append(f"{verb}\t" + json.dumps({"name": "demo", "options": {}}) + "\t3000000")
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1")
        before = c.answer("demo", "Hello!", max_tokens=20)
        pids = [c.local()["coordinator"]["pid"], *(a["pid"] for a in c.local()["agents"])]
        sizes = []
        for _ in range(2):
            done = subprocess.run(rogue_args(c, "ask", "-", os.path.join(c.folder, "state", "coordinator", "admin.key")), input="\n".join(lines) + "\n", capture_output=True, text=True,
                                  timeout=200 * SCALE)
            codes = collections.Counter(done.stdout.split("\n")[:-1])
            sizes.append(memory(pids[0], "VmRSS"))
            print(f"# {len(lines)} questions: {dict(codes)}, {sizes[-1] / MIB:.0f} MiB")
            assert done.returncode == 0 and sum(codes.values()) == len(lines), (done.returncode, done.stderr)
            assert codes["bug"] == 0, codes
        assert sizes[1] < sizes[0] + 30 * MIB, sizes
        for pid in pids:
            os.kill(pid, 0)
        if "demo" not in [d["name"] for d in c.hpctl("ps")]:
            c.deploy("demo", DEMO, "--agents", "a0,a1")
        c.wait("it answers as before", lambda: c.answer("demo", "Hello!", max_tokens=20) == before, 30)


main()
