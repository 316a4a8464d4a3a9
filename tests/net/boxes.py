"""Boxes in network namespaces: `with Boxes(["c", "a", "b"]) as boxes`. Every box but the first has a link of its own to the first, which forwards between them when told to."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import BUILD, SCALE
from tap import skip


def ip(*args):
    return subprocess.run(["ip", *args], capture_output=True, text=True)


class Boxes:
    def __init__(self, names, rate=None, cables=()):
        """`cables`: boxes whose link is a program's (link.py), which can lose and delay what it carries."""
        self.names, self.rate, self.cables = names, rate, {name: None for name in cables}
        self.folder = tempfile.mkdtemp(prefix="hp-net-")
        self.processes = []

    def space(self, name):
        return f"hp{os.getpid()}{name}"

    def __enter__(self):
        if os.geteuid() != 0 or ip("netns", "add", self.space("probe")).returncode != 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            skip("network namespaces need root")
        ip("netns", "del", self.space("probe"))
        try:
            for name in self.names:
                self.must("netns", "add", self.space(name))
                self.must("-n", self.space(name), "link", "set", "lo", "up")
            for i, name in enumerate(self.names[1:], 1):
                hub, box, near, far = self.space(self.names[0]), self.space(name), f"to{name}", "eth0"
                if name in self.cables:
                    self.cable(name, hub, near, box, far)
                else:
                    self.must("link", "add", near, "netns", hub, "type", "veth", "peer", "name", far, "netns", box)
                self.must("-n", hub, "addr", "add", f"10.77.{i}.1/24", "dev", near)
                self.must("-n", box, "addr", "add", f"10.77.{i}.2/24", "dev", far)
                self.must("-n", hub, "link", "set", near, "up")
                self.must("-n", box, "link", "set", far, "up")
                self.must("-n", box, "route", "add", "default", "via", f"10.77.{i}.1")
                if self.rate:
                    for space, device in ((hub, near), (box, far)):
                        subprocess.run(["ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", self.rate, "burst", "64kb", "latency", "50ms"],
                                       check=True, capture_output=True)
            self.forward(False)
            for name in self.names[1:]:
                self.wait_for_carrier(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def cable(self, name, *ends):
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "link.py")
        self.cables[name] = subprocess.Popen([sys.executable, program, *ends], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self.cables[name].stdout.readline()
        if said != "up\n":
            skip("there are no tap devices here")

    def disturb(self, name, loss, delay_s=0.0, loss_back=None):
        """From now on, to the box, and as much from it or `loss_back`; returns how many frames there were since the last time, and how many of them were lost."""
        cable = self.cables[name]
        cable.stdin.write(f"{loss} {delay_s} {loss if loss_back is None else loss_back}\n")
        cable.stdin.flush()
        return tuple(map(int, cable.stdout.readline().split()))

    def must(self, *args):
        done = ip(*args)
        assert done.returncode == 0, (args, done.stderr)

    def wait_for_carrier(self, name):
        """The kernel tells of a link that is up within a second."""
        for _ in range(50):
            if self.run(name, "cat", "/sys/class/net/eth0/operstate").stdout.strip() in ("up", "unknown"):
                return
            time.sleep(0.1)

    def forward(self, on):
        """Whether boxes reach each other, and not the first alone."""
        self.run(self.names[0], "sh", "-c", f"echo {int(on)} > /proc/sys/net/ipv4/ip_forward")

    def address(self, name):
        return "127.0.0.1" if name == self.names[0] else f"10.77.{self.names.index(name)}.2"

    def env(self, name):
        home = os.path.join(self.folder, name)
        os.makedirs(home, exist_ok=True)
        return dict(os.environ, HOME=home, HP_CONFIG_DIR=os.path.join(home, "config"), XDG_STATE_HOME=os.path.join(home, "state"))

    def run(self, name, *command, timeout=60):
        return subprocess.run(["ip", "netns", "exec", self.space(name), *command], env=self.env(name), capture_output=True, text=True, timeout=timeout * SCALE)

    def hpctl(self, name, *args, timeout=60):
        return self.run(name, os.path.join(BUILD, "hpctl"), *args, timeout=timeout)

    def start(self, name, program, *args):
        log = open(os.path.join(self.folder, f"{name}-{program}.log"), "a")
        p = subprocess.Popen(["ip", "netns", "exec", self.space(name), os.path.join(BUILD, program), *args], env=self.env(name), stdout=log, stderr=log)
        self.processes.append(p)
        return p

    def log(self, name, program):
        with open(os.path.join(self.folder, f"{name}-{program}.log"), errors="replace") as f:
            return f.read()

    def __exit__(self, kind=None, error=None, trace=None):
        for p in self.processes:
            p.terminate()
        for p in self.processes:
            try:
                p.wait(10 * SCALE)
            except subprocess.TimeoutExpired:
                p.kill()
        if kind:
            for file in sorted(os.listdir(self.folder)):
                if file.endswith(".log"):
                    print("# --", file)
                    print("".join("# " + line for line in open(os.path.join(self.folder, file), errors="replace").readlines()[-25:]))
        for cable in filter(None, self.cables.values()):
            cable.kill()
            cable.wait()
        for name in self.names:
            ip("netns", "del", self.space(name))
        shutil.rmtree(self.folder, ignore_errors=True)
