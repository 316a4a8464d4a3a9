"""Clusters on links of a chosen speed, for benchmarks: `with ShapedCluster("100mbit", agents=2) as c: c.deploy(...)`. As tests/proc/cluster.py's Cluster, but each agent is a box of its own (a network namespace) with
a cable to one switch (a bridge), which the coordinator hangs on, too; both ends of each cable send at most at the given rate (tbf). None: the same boxes and no shaping. "loopback": no boxes, agents on this box as `hpctl local` starts them.

Needs root; can_shape() says whether it can be had."""
import json
import os
import shutil
import signal
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "proc")]
from cluster import BUILD, Cluster, free_port  # noqa: E402

NET = f"10.78.{os.getpid() % 250}"


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # boxes and cables go, too


def ip(*args):
    done = subprocess.run(["ip", *args], capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stderr)


def slow(rate):
    """Below 50 Mbit/s: a bucket of 128 kB would let a slice through before it says anything."""
    return float(rate.rstrip("bitkmg")) * {"k": 1e3, "m": 1e6, "g": 1e9}.get(rate[:-3][-1], 1) < 5e7


def can_shape():
    if os.geteuid() != 0 or subprocess.run(["ip", "netns", "add", f"hpprobe{os.getpid()}"], capture_output=True).returncode != 0:
        return False
    ip("netns", "del", f"hpprobe{os.getpid()}")
    return True


def clusters(links, agents):
    """One cluster after the other, with the rate that its deployments are to have (deploy_on): of each link in "loopback,1gbit,100mbit"."""
    for link in links.split(","):
        if link == "loopback":
            with ShapedCluster("loopback", agents=agents, cores=1) as c:
                yield link, c
        elif can_shape():
            with ShapedCluster(None, agents=agents) as c:
                yield link, c
        else:
            print(f"  {link}: links are shaped in network namespaces, which need root")


class ShapedCluster(Cluster):
    def __init__(self, rate, agents=3, delay=None, **options):
        super().__init__(agents=agents, **options)
        self.rate, self.delay = rate, delay
        self.processes, self.boxes, self.bridge = [], [], None

    # ---- cables ----

    def shape(self, rate):
        """All cables send at most at this rate from now on (None: as fast as they can)."""
        self.rate = rate
        for i, box in enumerate(self.boxes):
            for where, device in (([], f"hw{os.getpid()}x{i}"), (["ip", "netns", "exec", box], "eth0")):
                subprocess.run([*where, "tc", "qdisc", "del", "dev", device, "root"], capture_output=True)
                if rate:
                    subprocess.run([*where, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "32kb" if slow(rate) else "128kb", "limit", "4mb"], check=True, capture_output=True)

    def wire_up(self):
        self.bridge = f"hw{os.getpid()}"
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{NET}.1/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for i in range(self.agents_wanted):
            box, near = f"hw{os.getpid()}a{i}", f"hw{os.getpid()}x{i}"
            ip("netns", "add", box)
            self.boxes.append(box)
            ip("link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", box)
            ip("link", "set", near, "master", self.bridge, "up")
            ip("-n", box, "link", "set", "lo", "up")
            ip("-n", box, "addr", "add", f"{NET}.{i + 2}/24", "dev", "eth0")
            ip("-n", box, "link", "set", "eth0", "up")
        self.shape(self.rate)

    def deploy_on(self, rate, deployments):
        """Each of `deployments` ([model, NAME, options of deploy...]) over cables of that rate. Weights go over before, as fast as they can; the planner knows the speed that is measured after. "loopback" shapes nothing."""
        def deploy():
            for model, name, *options in deployments:
                self.hpctl("deploy", model, "--name", name, *options, timeout=600)

        deploy()
        if self.rate == "loopback":
            return
        for _, name, *_ in deployments:
            self.hpctl("undeploy", name)
        self.shape(rate)
        self.run("topo", "--measure", timeout=120)
        deploy()

    # ---- processes ----

    def start(self, name, command):
        with open(os.path.join(self.folder, "state", name, "log"), "a") as log:
            self.processes.append(subprocess.Popen(command, env=self.env, stdout=log, stderr=log))

    def boot(self):
        state, listen, self.port = os.path.join(self.folder, "state"), f"{NET}.1:{free_port()}", free_port()
        self.http = f"http://127.0.0.1:{self.port}"
        for name in ("coordinator", *(f"a{i}" for i in range(self.agents_wanted))):
            os.makedirs(os.path.join(state, name))
        home = os.path.join(state, "home")
        done = self.run("cluster", "init", "--name", "shaped", "--dir", home, "--listen", listen)
        assert done.returncode == 0, done.stderr
        self.start("coordinator", [os.path.join(BUILD, "hp-coordinator"), "--dir", home, "--listen", listen, "--http", f"127.0.0.1:{self.port}", "--name", "shaped"])
        self.wait("the coordinator answers", lambda: self.run("node", "ls").returncode == 0)
        usable = sorted(os.sched_getaffinity(0))
        for i, box in enumerate(self.boxes):
            token = self.hpctl("node", "token", "create")["token"]
            self.start(f"a{i}", ["ip", "netns", "exec", box, os.path.join(BUILD, "hp-agent"), "--join", listen, "--token", token, "--name", f"a{i}", "--dir", os.path.join(state, f"a{i}", "agent"),
                                 "--cores", str(usable[i % len(usable)]), "--memory", str(self.options.get("memory", "4GiB"))])
        self.wait("all agents are ready", lambda: [m["state"] for m in self.hpctl("node", "ls")] == ["ready"] * self.agents_wanted, 40)

    def __enter__(self):
        if self.rate == "loopback":
            return super().__enter__()
        try:
            os.makedirs(os.path.join(self.folder, "state"))
            self.wire_up()
            self.boot()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, error, trace):
        if self.rate == "loopback" and not self.bridge:
            return super().__exit__(kind, error, trace)
        if kind is not None:
            self.show_logs()
        for p in reversed(self.processes):
            p.terminate()
        for p in self.processes:
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
        for box in self.boxes:
            subprocess.run(["ip", "netns", "del", box], capture_output=True)
        if self.bridge:
            subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def sent_bytes(self, i):
        """Payload and all that box i's cable has carried from it."""
        text = subprocess.run(["ip", "netns", "exec", self.boxes[i], "cat", "/sys/class/net/eth0/statistics/tx_bytes"], capture_output=True, text=True).stdout
        return int(text)


if __name__ == "__main__":  # what a rate comes to: one link, measured by the agents themselves
    for wanted in sys.argv[1:] or ("1gbit", "100mbit"):
        with ShapedCluster(wanted, agents=2) as shaped:
            print(wanted, json.dumps(shaped.hpctl("topo", "--measure"))[:2000])
