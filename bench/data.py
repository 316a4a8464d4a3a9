"""The data channel against a plain loop over send and recv, on loopback and on a link that is shaped to 1 Gbit/s: throughput, what receiving costs, and what a
small frame has to wait for while two others flood the same receiver. Kinds are measured in turn, three rounds; figures are medians."""
import os
import statistics
import subprocess
import time

PROGRAM = os.path.join(os.environ.get("HP_BUILD", "build"), "bench", "data")
KINDS = tuple(os.environ.get("KINDS", "plain tcp ucx").split())
ROUNDS = int(os.environ.get("ROUNDS", "3"))
SECONDS = float(os.environ.get("SECONDS", "3"))
PINGS = 200


class Place:
    """Where the two ends run: commands to put before theirs, addresses, the interface's name."""

    def __init__(self, name, sink_host, sender_host, sink_network, sender_network, sink_prefix=(), sender_prefix=()):
        self.name, self.sink_host, self.sender_host = name, sink_host, sender_host
        self.sink_network, self.sender_network = sink_network, sender_network
        self.sink_prefix, self.sender_prefix = list(sink_prefix), list(sender_prefix)


class Sink:
    def __init__(self, place, kind, prefix=()):
        self.place, self.kind = place, kind
        self.process = subprocess.Popen([*place.sink_prefix, *prefix, PROGRAM, "sink", kind, place.sink_host, place.sink_network],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split()[1]

    def mark(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [float(x) for x in self.process.stdout.readline().split()]

    def sender(self, role, key, amount, prefix=()):
        return subprocess.Popen([*self.place.sender_prefix, *prefix, PROGRAM, role, self.kind, self.place.sender_host, self.place.sender_network, self.address,
                                 str(key), str(amount)], stdout=subprocess.PIPE, text=True)

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)


def throughput(place, kind, pin):
    """(bytes per second, bytes that a core receives in a second of its time, bytes that a core sends in one)"""
    sink = Sink(place, kind, ["taskset", "-c", "0"] if pin else [])
    sender = sink.sender("flood", 1, SECONDS + 1.5, ["taskset", "-c", "1"] if pin else [])
    time.sleep(0.8)
    first = sink.mark()
    time.sleep(SECONDS)
    last = sink.mark()
    sent, cpu = (float(x) for x in sender.communicate(timeout=60)[0].split())
    sink.close()
    received = last[0] - first[0]
    return received / (last[1] - first[1]), received / (last[2] - first[2]), sent / cpu


def latency(place, kind):
    """(mean, worst) milliseconds of the round trip of a small frame, while two others send all they can"""
    sink = Sink(place, kind)
    floods = [sink.sender("flood", key, 0.015 * PINGS + 4) for key in (1, 2)]
    time.sleep(0.8)
    ping = sink.sender("ping", 3, PINGS)
    mean, worst = (float(x) for x in ping.communicate(timeout=60)[0].split())
    for flood in floods:
        flood.wait(60)
    sink.close()
    return mean, worst


def compare_throughput(place, pin):
    rounds = {kind: [] for kind in KINDS}
    for _ in range(ROUNDS):
        for kind in KINDS:
            rounds[kind].append(throughput(place, kind, pin))
    medians = {kind: [statistics.median(one) for one in zip(*rounds[kind])] for kind in KINDS}
    for kind, (rate, receives, sends) in medians.items():
        print(f"{place.name}: {kind:5}  {rate / 1e9:6.3f} GB/s  {rate / medians['plain'][0]:5.2f} of plain  one core receives {receives / 1e9:5.2f} GB/s "
              f"({125e6 / receives:5.3f} of it at 1 Gbit/s) and sends {sends / 1e9:5.2f} GB/s")


def compare_latency(place):
    for kind in KINDS[1:]:
        rounds = [latency(place, kind) for _ in range(ROUNDS)]
        print(f"{place.name}: {kind:5}  a small frame there and back while two flood: {statistics.median(m for m, _ in rounds):6.2f} ms mean, "
              f"{max(w for _, w in rounds):6.2f} ms at worst")


def ip(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def shaped(near, far):
    """Two network namespaces with a veth pair, each end shaped to 1 Gbit/s with 2 ms of queue."""
    ip("ip", "netns", "add", near)
    ip("ip", "netns", "add", far)
    ip("ip", "-n", near, "link", "add", "hp0", "type", "veth", "peer", "name", "hp1", "netns", far)
    for space, device, host in ((near, "hp0", "10.99.0.1"), (far, "hp1", "10.99.0.2")):
        ip("ip", "-n", space, "addr", "add", f"{host}/24", "dev", device)
        ip("ip", "-n", space, "link", "set", "lo", "up")
        ip("ip", "-n", space, "link", "set", device, "up")
        ip("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate", "1gbit", "burst", "128kb", "latency", "2ms")
    inside = lambda space: ["ip", "netns", "exec", space]
    return Place("1 Gbit/s", "10.99.0.1", "10.99.0.2", "hp0", "hp1", inside(near), inside(far))


def main():
    loopback = Place("loopback", "127.0.0.1", "127.0.0.1", "lo", "lo")
    compare_throughput(loopback, os.cpu_count() > 1)
    compare_latency(loopback)
    spaces = [f"hp-bench-{os.getpid()}-{i}" for i in range(2)]
    try:
        place = shaped(*spaces)
    except (OSError, subprocess.CalledProcessError) as e:
        why = e.stderr.decode().strip() if getattr(e, "stderr", None) else e
        print(f"1 Gbit/s: skipped: this machine makes no shaped link between network namespaces ({why})")
        place = None
    if place:
        compare_throughput(place, False)
        compare_latency(place)
    for space in spaces:
        subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL)


main()
