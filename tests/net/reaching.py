"""A cluster over boxes in network namespaces, for tests."""
import json
import os
import time

from boxes import SCALE

PORTS = {"a": "7171", "b": "7172"}


def wait(what, check, seconds=20):
    until = time.monotonic() + seconds * SCALE
    while time.monotonic() < until:
        value = check()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


def cluster(boxes, *options):
    """A coordinator on box c, agents on a and b, as docs/cluster.md says."""
    state = os.path.join(boxes.folder, "home")
    done = boxes.hpctl("c", "cluster", "init", "--name", "home", "--dir", state, "--listen", "0.0.0.0:7070", *options)
    assert done.returncode == 0, done.stderr
    boxes.start("c", "hp-coordinator", "--dir", state, "--listen", "0.0.0.0:7070", "--http", "127.0.0.1:8080", "--name", "home", *options)
    wait("the coordinator answers", lambda: boxes.hpctl("c", "node", "ls").returncode == 0)
    for i, name in enumerate("ab", 1):
        made = json.loads(boxes.hpctl("c", "node", "token", "create", "-o", "json").stdout)
        assert f"10.77.{i}.1:7070" in made["join"], made
        boxes.start(name, "hp-agent", "--join", f"10.77.{i}.1:7070", "--token", made["token"], "--name", name, "--cores", "any:1", "--memory", "2GiB", "--data-port", PORTS[name])
    wait("both agents are ready", lambda: [m["state"] for m in json.loads(boxes.hpctl("c", "node", "ls", "-o", "json").stdout)] == ["ready"] * 2)
