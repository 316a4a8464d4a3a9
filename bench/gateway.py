"""The HTTP gateway's one thread, over a core that only says tokens (bench/gateway.c): memory of open streams, processor time of an event and of a request, and what slow
connections do to a good client.

    python3 bench/gateway.py [--streams 10000] [--events 40] [--slow 5000] [--requests 3000]

Fewer streams are opened where the process may not have so many descriptors (a stream takes two): the figures are of those that were. Costs are processor time of the gateway's
process, which load does not change; what they mean in a second of a core is worked out of them. Latencies are of the wall clock, in turn with and without slow connections."""
import argparse
import http.client
import json
import os
import resource
import select
import socket
import statistics
import subprocess
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
PROGRAM = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "bench", "gateway")
DEMO = os.path.join(ROOT, "examples", "demo-model", "demo-q8_0.gguf")
options = argparse.ArgumentParser()
options.add_argument("--streams", type=int, default=10000)
options.add_argument("--events", type=int, default=40)
options.add_argument("--slow", type=int, default=5000)
options.add_argument("--requests", type=int, default=3000)
options.add_argument("--small", action="store_true")
options = options.parse_args()
if options.small:
    options.streams, options.events, options.slow, options.requests = 200, 10, 100, 200
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
STREAMS = min(options.streams, hard // 2 - 400)


class Gateway:
    def __init__(self):
        self.child = subprocess.Popen([PROGRAM, DEMO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.child.stdout.readline())

    def order(self, line):
        """(open requests, resident bytes, seconds of processor time) once it is done."""
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        n, resident, ns = self.child.stdout.readline().split()
        return int(n), int(resident), int(ns) * 1e-9

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        self.child.wait()


def chat(stream):
    body = json.dumps({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "Hello"}]}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def drain(poll, by_fd, until):
    """Reads what comes until `until(events)` of the bytes counted so far."""
    events = 0
    while not until(events):
        for fd, _ in poll.poll(1000):
            events += by_fd[fd].recv(1 << 20).count(b"data: ")
    return events


def streams():
    with Gateway() as g:
        poll, by_fd = select.epoll(), {}
        before = g.order("stat")
        for i in range(STREAMS):
            s = socket.create_connection(("127.0.0.1", g.port))
            s.sendall(chat(True))
            by_fd[s.fileno()] = s
            poll.register(s, select.EPOLLIN)
        while g.order("stat")[0] < STREAMS:
            time.sleep(0.05)
        there = g.order("stat")
        grown = there[1] - before[1]
        print(f"{STREAMS} open chat streams that await tokens: {grown / 1e6:.1f} MB more, {grown / STREAMS:.0f} bytes a stream, so {grown / STREAMS * 1e4 / 1e6:.1f} MB for 10000; "
              f"{(there[2] - before[2]) / STREAMS * 1e6:.0f} us of a core to open one", flush=True)
        g.order("push 1")  # the stream's head and the role
        drain(poll, by_fd, lambda n: n >= 2 * STREAMS)
        start = g.order("stat")
        began = time.monotonic()
        for _ in range(options.events):
            g.order("push 1")
            drain(poll, by_fd, lambda n: n >= STREAMS)
        end = g.order("stat")
        took, events = time.monotonic() - began, STREAMS * options.events
        cost = (end[2] - start[2]) / events
        print(f"{events} events to {STREAMS} streams, each read before the next: {cost * 1e6:.2f} us of a core an event, so {1 / cost:.0f} a second of one core; "
              f"{events / took:.0f} a second by the wall clock beside a reader in Python; {(end[1] - before[1]) / 1e6:.1f} MB more than without streams", flush=True)
        g.order("finish")


def latencies(connection, n):
    out, asked = [], chat(False)
    body = asked.partition(b"\r\n\r\n")[2]
    for _ in range(n):
        started = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        assert reply.status == 200 and reply.read()
        out.append(time.perf_counter() - started)
    return sorted(out)


def quantile(values, q):
    return values[min(len(values) - 1, int(q * len(values)))]


def requests():
    with Gateway() as g:
        g.order("answer 1")
        connection = http.client.HTTPConnection("127.0.0.1", g.port)
        latencies(connection, 100)
        before = g.order("stat")
        values = latencies(connection, options.requests)
        cost = (g.order("stat")[2] - before[2]) / options.requests
        print(f"{options.requests} requests of one token, one after the other: {cost * 1e6:.0f} us of a core each, so {1 / cost:.0f} a second of one core and {300 * cost * 100:.0f} % of one at 300 a second; "
              f"p50 {quantile(values, .5) * 1e3:.2f}, p99 {quantile(values, .99) * 1e3:.2f} ms with the client's own time, over a stage that takes none", flush=True)


def slow(g):
    """Connections whose headers drip: opened, a part of a request said, and a line more each second."""
    held = []
    for i in range(options.slow):
        s = socket.create_connection(("127.0.0.1", g.port))
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX: ")
        s.setblocking(False)
        held.append(s)
    return held


def strangers():
    with Gateway() as g:
        g.order("answer 1")
        connection = http.client.HTTPConnection("127.0.0.1", g.port)
        latencies(connection, 200)
        ratios, costs = {.5: [], .99: []}, []
        for _ in range(5):
            alone = latencies(connection, options.requests // 3)
            held = slow(g)
            before, began = g.order("stat"), time.monotonic()
            beside = latencies(connection, options.requests // 6)
            for s in held:  # each drips
                try:
                    s.send(b"y")
                except OSError:
                    pass
            beside = sorted(beside + latencies(connection, options.requests // 6))
            costs.append((g.order("stat")[2] - before[2]) / (time.monotonic() - began))
            for s in held:
                s.close()
            latencies(connection, 50)
            for q in ratios:
                ratios[q].append(quantile(beside, q) / quantile(alone, q))
        said = "; ".join(f"p{q * 100:.0f} {statistics.median(r):.2f} ({min(r):.2f} to {max(r):.2f})" for q, r in ratios.items())
        print(f"{options.slow} connections whose headers drip: a good client's latency beside them over alone, medians of 5: {said}", flush=True)


print(f"load {os.getloadavg()[0]:.1f}, descriptors {hard}")
streams()
requests()
strangers()
print(f"load {os.getloadavg()[0]:.1f}")
