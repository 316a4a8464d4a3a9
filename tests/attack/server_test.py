"""A server that answers hpctl with what is no API: every verb ends with an error in bounded memory, and a terminal is told nothing that it would obey."""
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))
from cluster import BUILD, SCALE, Cluster
from tap import main, test
from terminal import Terminal

GIB = 1 << 30
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(text):
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}).encode() + b"\n\n"


def without_end(piece):
    return iter(lambda: piece * (65536 // len(piece)), None)


class Server:
    """Every request gets `answer`: bytes, or what gives bytes as long as they are taken."""

    def __init__(self, answer):
        self.answer, self.asked = answer, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            with s:
                s.settimeout(10 * SCALE)
                try:
                    s.recv(65536)
                    self.asked += 1
                    for piece in [self.answer] if isinstance(self.answer, bytes) else self.answer:
                        s.sendall(piece)
                    s.shutdown(socket.SHUT_WR)
                    s.recv(1)
                except OSError:
                    pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts: the next server may get this one's descriptor
        self.thread.join(20 * SCALE)
        self.listener.close()


def believed(c, server):
    """The environment of a user whose context says that the API is there."""
    folder = os.path.join(c.folder, f"fooled-{server.address.rsplit(':', 1)[1]}")
    os.makedirs(os.path.join(folder, "contexts"))
    with open(os.path.join(c.env["HP_CONFIG_DIR"], "contexts", "local.json")) as f:
        context = dict(json.load(f), http=server.address)
    with open(os.path.join(folder, "contexts", "local.json"), "w") as f:
        json.dump(context, f)
    with open(os.path.join(folder, "current"), "w") as f:
        f.write("local\n")
    return dict(c.env, HP_CONFIG_DIR=folder)


def ends(c, answer, *verb):
    """(exit status, standard output, standard error)"""
    with Server(answer) as server:
        begun = time.monotonic()
        done = subprocess.run([os.path.join(BUILD, "hpctl"), *verb], env=believed(c, server), capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=30 * SCALE,
                              preexec_fn=None if "fuzz-obj" in BUILD or "san" in os.path.basename(BUILD) else lambda: resource.setrlimit(resource.RLIMIT_AS, (2 * GIB, 2 * GIB)))
        assert server.asked and done.returncode >= 0, (verb, done)
        print(f"# {verb[0]}: {done.returncode} after {time.monotonic() - begun:.1f} s: {done.stderr.strip().splitlines()[:1]}")
        return done.returncode, done.stdout, done.stderr


@test
def answers_that_are_none_are_errors_in_bounded_memory():
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        run = ("run", "demo", "Hello")
        assert ends(c, HEAD + event("Hel") + event("lo") + DONE, *run)[:2] == (0, "Hello\n")
        for answer, says in ((HEAD + event("Hel"), "broke off"), (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>Log in to this network</html>", "broke off"),
                             (HEAD + b"data: {nope\n\n" + DONE, "not JSON"), (HEAD + b"data: " + b"[" * 100000 + b"\n\n", "not JSON"), (b"\x00\xff" * 1000, "Unsupported protocol"),
                             (without_end(b"X: y\r\n"), "127.0.0.1"), ((p for p in [HEAD + b"data: ", *[b"a" * (1 << 20)] * 20]), "more than 16 MiB")):
            rc, _, said = ends(c, answer, *run)
            assert rc == 1 and says in said, (says, rc, said)
        # of an answer that is no stream
        rc, _, said = ends(c, (p for p in [b"HTTP/1.1 200 OK\r\n\r\n", *[b"a" * (1 << 20)] * 300]), "load", "demo", "--rate", "1", "--seconds", "1")
        assert rc == 1 and "more than 256 MiB" in said, (rc, said)


@test
def a_terminal_obeys_no_answer():
    text = "one\x1b[2J\x1b]0;two\x07\u009b31m\r\x08\tthree\né"
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        for verb in (("run", "demo", "Hello"), ("chat", "demo")):
            with Server(HEAD + event(text) + DONE) as server:
                t = Terminal(believed(c, server), *verb)
                if verb[0] == "chat":
                    t.until(r"> $")
                    os.write(t.fd, b"Hello\n")
                shown = t.until("three\r?\n.*é")
                told = shown[shown.index("one"):]
                assert told.replace("\x1b[0m", "").startswith("one?[2J?]0;two??31m??") and "\x07" not in told and "\x1b[2J" not in told and "\u009b" not in told, repr(told)
                os.close(t.fd)
        # what is no terminal gets it as it is
        assert ends(c, HEAD + event(text) + DONE, "run", "demo", "Hello")[1] == text.replace("\r", "\n") + "\n"


main()
