"""Readers that do not read: clients of streams whose receive buffers are full, of long answers and of many at once. Others are not delayed, memory stays bounded, and what is theirs is given back."""
import json
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import Cluster, DEMO, SCALE
from tap import main, test

MIB = 1 << 20


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS:"))


def deaf_stream(port, body):
    """A stream's request over a connection whose answer is never read, and has little room."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    s.settimeout(20 * SCALE)
    s.connect(("127.0.0.1", port))
    data = json.dumps(dict(body, stream=True)).encode()
    s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    return s


def timed(c, n=5):
    worst = 0
    for _ in range(n):
        began = time.monotonic()
        status, body = c.request("POST", "/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 20, "temperature": 0})
        assert status == 200, body
        worst = max(worst, time.monotonic() - began)
    return worst


def active(c):
    return c.hpctl("describe", "demo")["sequences_active"]


@test
def streams_that_nobody_reads_delay_no_one_and_end():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--max-sequences", "32")
        alone = timed(c)
        pid = c.local()["coordinator"]["pid"]
        before = resident(pid)
        body = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1500, "temperature": 0, "ignore_eos": True}
        deaf = [deaf_stream(c.port, body) for _ in range(24)]
        c.wait("they run", lambda: active(c) > 8, 20)
        beside = timed(c)
        print(f"# an answer alone {alone * 1000:.0f} ms, beside 24 that nobody reads {beside * 1000:.0f} ms")
        assert beside < 20 * SCALE
        # Their tokens are all made within the coordinator's buffers, or they are ended: either way their places come back.
        c.wait("their sequences have ended", lambda: active(c) == 0, 90)
        grown = resident(pid) - before
        print(f"# the coordinator grew by {grown / MIB:.1f} MiB")
        assert grown < 100 * MIB, grown
        last = timed(c)
        assert last < max(1.0, 5 * alone) * SCALE, (last, alone)
        for s in deaf:
            s.close()


@test
def pages_that_nobody_reads_hold_no_memory():
    """Many connections that ask again and again on one connection and never read an answer."""
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        pid = c.local()["coordinator"]["pid"]
        before = resident(pid)
        held = []
        for _ in range(100):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.connect(("127.0.0.1", c.port))
            s.setblocking(False)
            held.append(s)
        ask = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20
        until = time.monotonic() + 4
        sent = 0
        while time.monotonic() < until:
            for s in held:
                try:
                    sent += s.send(ask)
                except OSError:
                    pass
            time.sleep(0.01)
        grown = resident(pid) - before
        print(f"# {sent / MIB:.1f} MiB of questions sent, the coordinator grew by {grown / MIB:.1f} MiB")
        assert grown < 200 * MIB, grown
        assert timed(c) < 5 * SCALE
        for s in held:
            s.close()


main()
