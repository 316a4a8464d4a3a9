"""What hpctl shows of a cluster on a terminal, while it goes on and when it is interrupted: `top`, lists, progress, an answer of `chat`."""
import os
import re
import signal
import subprocess
import threading
import time

from cluster import Cluster, DEMO, ROOT, SCALE
from tap import main, test
from terminal import HPCTL, Terminal


QUESTION = b"Tell me a story.\r"


def shows(screen, pattern):
    """Drawn anew, since else only what changed is."""
    until = time.monotonic() + 30 * SCALE
    while True:
        os.write(screen.fd, b"\x0c")
        try:
            return screen.until(pattern, 1)
        except AssertionError:
            assert time.monotonic() < until, (pattern, screen.seen[-400:])


@test
def what_a_cluster_does_is_seen_live():
    with Cluster(agents=2, cores=1) as c:
        screen = Terminal(c.env, "top", "--interval", "100ms")
        shows(screen, "nothing is deployed")
        c.deploy("demo", DEMO)
        shows(screen, r"demo *(\x1b\[[0-9;]*[A-Za-z])?serving")
        narrow = Terminal(c.env, "top", "--interval", "100ms", columns=50)
        shows(narrow, r"a1 +(\x1b\[[0-9;]*[A-Za-z])?ready")
        time.sleep(0.3)
        assert "demo 0-" not in narrow.shown()  # what has no room is in no other row
        os.write(narrow.fd, b"q")
        over = threading.Event()

        def ask():
            while not over.is_set():
                c.request("POST", "/v1/completions", {"model": "demo", "prompt": "one two", "max_tokens": 400, "ignore_eos": True})

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            c.wait("something is answered", lambda: c.hpctl("describe", "demo")["output_tokens"] > 0)
            figures = c.hpctl("top", "--interval", "300ms")
        finally:
            over.set()
            asking.join()
        (demo,), agents = figures["deployments"], {a["name"]: a for a in figures["agents"]}
        assert demo["tokens_per_s"] > 0 and demo["active"] in (0, 1) and 0 <= demo["kv_share"] < 1, figures
        assert set(agents) == {"a0", "a1"} and all(a["state"] == "ready" for a in agents.values()), figures
        assert sum("demo" in a["stages"] for a in agents.values()) == demo["stages"] == len(figures["stages"]), figures
        c.hpctl("topo", "--measure")
        for stage in c.hpctl("top", "--interval", "100ms")["stages"]:
            assert stage["on"] in agents and (stage["bandwidth_bytes_per_s"] > 1e6 if demo["stages"] > 1 else not stage["to"]), stage
        os.write(screen.fd, b"q")
        assert os.waitpid(screen.pid, 0)[1] == 0
        text = c.run("top", "--once", "--interval", "100ms")
        assert text.returncode == 0 and "TOKENS/S" in text.stdout and "LATENCY" in text.stdout and "a1 " in text.stdout, text
        for wrong, why in ((("--interval", "5"), "unit"), (("--interval", "1h1"), "--interval"), (("--interval", "1ms"), "out of range")):
            done = c.run("top", *wrong)
            assert done.returncode == 2 and why in done.stderr, done


@test
def lists_are_shown_again_and_again_until_interrupted():
    with Cluster(agents=1, cores=1) as c:
        watch = Terminal(c.env, "node", "ls", "--watch")
        for _ in range(2):
            watch.until(r"\x1b\[H\x1b\[2J[^\x1b]*a0 +ready")
        os.write(watch.fd, b"\x03")
        assert os.WTERMSIG(os.waitpid(watch.pid, 0)[1]) == signal.SIGINT
        piped = subprocess.Popen([HPCTL, "node", "ls", "--watch", "-o", "json"], env=c.env, stdout=subprocess.PIPE, text=True)
        said = ""
        while said.count('"name": "a0"') < 2:
            line = piped.stdout.readline()
            assert line, said
            said += line
        c.deploy("demo", DEMO)
        for verb, key in (("local ls", '"coordinator"'), ("context ls", '"control"'), ("pools", '"state"'), ("describe demo", '"model_id"'), ("topo", '"hp-cluster/1"')):
            lists = subprocess.Popen([HPCTL, *verb.split(), "--watch", "-o", "json"], env=c.env, stdout=subprocess.PIPE, text=True)
            said = ""
            while said.count(key) < 2:
                line = lists.stdout.readline()
                assert line, (verb, said)
                said += line
            lists.kill()
            lists.wait()
        c.hpctl("local", "down")
        assert piped.wait(60 * SCALE) != 0  # what cannot be asked any more ends it


@test
def a_log_is_followed_each_line_once():
    with Cluster(agents=1, cores=1) as c:
        follow = subprocess.Popen([HPCTL, "logs", "a0", "--follow"], env=c.env, stdout=subprocess.PIPE, text=True)
        seen = []
        try:
            for at, name in enumerate(("one", "two")):
                c.deploy(name, DEMO, "--max-context", "256")
                while sum("stage_loaded" in line for line in seen) <= at:
                    line = follow.stdout.readline()
                    assert line, seen
                    seen.append(line)
        finally:
            follow.kill()
            follow.wait()
        assert len(set(seen)) == len(seen), seen
        told = c.run("logs", "coordinator")
        assert told.returncode == 0 and told.stdout.strip(), told
        missing = c.run("logs", "nobody", "--follow")
        assert missing.returncode == 4 and "nobody" in missing.stderr, missing


def slow_down(pid, over):
    """The process gets a sixth of its time, until `over`."""
    while not over.wait(0.02):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(pid, signal.SIGCONT)


@test
def what_waits_for_its_cluster_says_so_once_a_second_has_passed():
    with Cluster(agents=1, cores=1) as c:
        assert c.run("node", "ls").stderr in ("", "node ls goes on\n")  # a very busy box
        for more, said in (((), ["node ls goes on"]), (("-o", "json"), [])):
            pid = c.kill("coordinator", signal.SIGSTOP)
            asked = subprocess.Popen([HPCTL, "node", "ls", *more], env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(2 * SCALE)
            os.kill(pid, signal.SIGCONT)
            out, err = asked.communicate(timeout=30 * SCALE)
            assert asked.returncode == 0 and "a0" in out and err.splitlines() == said, (out, err)
        c.kill("coordinator", signal.SIGSTOP)
        screen = Terminal(c.env, "node", "ls")
        screen.until(r"node ls goes on: [12] s")
        os.kill(pid, signal.SIGCONT)
        screen.until(r"\r\x1b\[K[^\x1b]*a0 +ready")
        c.deploy("demo", DEMO)
        pid = c.kill("a0", signal.SIGSTOP)
        screen = Terminal(c.env, "run", "demo", "What is the capital of Cuba?", "--temperature", "0")
        screen.until(r"waiting for the answer: [12] s")
        os.kill(pid, signal.SIGCONT)
        screen.until(r"\r\x1b\[K[^\r]*Havana")


@test
def what_takes_long_says_how_much_time_is_left():
    with Cluster(agents=1, cores=1) as c:
        over = threading.Event()
        slow = threading.Thread(target=slow_down, args=(c.pids()["a0"], over))  # a fast box would be done before a time left is known
        slow.start()
        try:
            screen = Terminal(c.env, "profile", DEMO, "--budget", "3")
            screen.until(r"\[#*\.*\] +[0-9]+ %  [0-9]+ s left  a0 measures ")
        finally:
            over.set()
            slow.join()
        screen = Terminal(c.env, "apply", "-f", os.path.join(ROOT, "examples", "pools", "toy.workload.yaml"))
        screen.until(r"\[#*\.*\] +[0-9]+ %  a0 measures toy")
        os.write(screen.fd, b"\x03")
        os.waitpid(screen.pid, 0)


class Conversation:
    """A chat on a terminal, whose only agent is stopped and let go on, so that answers stand still where they are to be interrupted."""

    def __init__(self, c, *options):
        c.deploy("demo", DEMO)
        self.c, self.agent = c, c.pids()["a0"]
        self.chat = Terminal(c.env, "chat", "demo", *options)
        self.chat.until(r"> $")

    def asked(self):
        """How many of its requests the coordinator has."""
        d = self.c.hpctl("describe", "demo")
        return d["sequences_active"] + d["sequences_waiting"]

    def shown(self):
        """Without what says meanwhile that nothing has come."""
        return re.sub(r"\r\x1b\[K(waiting for the answer: \d+ s)?", "", self.chat.shown())

    def stopped(self, keys, *, begun=False):
        """What a Ctrl-C shows behind these keys, which end with one or ask for something first; with `begun`, once something of the answer is there. None: that was over before."""
        chat, pause = self.chat, 0.001
        os.kill(self.agent, signal.SIGSTOP)
        try:
            os.write(chat.fd, keys)
            if not keys.endswith(b"\x03"):
                self.c.wait("it has been asked", self.asked)
                self.shown()  # what was typed, all of which is shown before it is asked
                chat.seen = ""
                while begun and not self.shown():  # a moment at a time, of which the answer takes many
                    os.kill(self.agent, signal.SIGCONT)
                    time.sleep(pause)
                    os.kill(self.agent, signal.SIGSTOP)
                    pause = min(2 * pause, 1)
                    time.sleep(0.05)  # for what is on its way
                if re.search(r"\n> $", self.shown()):
                    chat.seen = ""
                    return None
                os.write(chat.fd, b"\x03")
            return chat.until(r"\n> $")
        finally:
            os.kill(self.agent, signal.SIGCONT)

    def end(self):
        self.c.wait("nothing goes on for what was stopped", lambda: not self.asked())
        os.write(self.chat.fd, b"/exit\r")
        assert os.waitpid(self.chat.pid, 0)[1] == 0


@test
def ctrl_c_ends_an_answer_and_not_the_conversation():
    with Cluster(agents=1, cores=1) as c:
        talk = Conversation(c, "--temperature", "0")
        assert "interrupted" in talk.stopped(QUESTION), "what was not begun is not said to be there"
        whole = talk.chat.say(QUESTION.decode()).split(QUESTION.decode().strip())[-1].strip("\r\n> ")
        talk.chat.say("/reset\r")
        assert len(whole) > 100, whole
        for _ in range(50):  # an answer may be over before it is stopped
            part = talk.stopped(QUESTION, begun=True)
            if part:
                break
            talk.chat.say("/reset\r")
        said = part.split("^C")[0].strip()
        assert "(stopped; /regen asks again)" in part and said and whole.startswith(said), (part, whole)
        again = talk.chat.say("/regen\r")
        assert whole in again and "stopped" not in again, again
        talk.end()


@test
def ctrl_c_is_heard_behind_a_line_that_nobody_has_read_yet():
    """All keys at once, as a paste has them: the line editor has the terminal, to which Ctrl-C is a key like others."""
    with Cluster(agents=1, cores=1) as c:
        talk = Conversation(c, "--temperature", "0")
        for _ in range(3):
            assert "interrupted" in talk.stopped(QUESTION + b"\x03")
        assert "interrupted" in talk.stopped(QUESTION + b"What is the capital of Peru?\r\x03")  # nor is the second asked
        both = talk.chat.say("What is the capital of Cuba?\rWhat is the capital of Peru?\r", r"Lima(?s:.)*\n> $")
        assert both.index("Havana") < both.index("Lima") and both.count("capital of Cuba?") == 1, both
        talk.end()


@test
def a_coordinator_that_is_gone_is_said_and_awaited():
    with Cluster(agents=1, cores=1) as c:
        screen = Terminal(c.env, "top", "--interval", "100ms")
        shows(screen, r"a0 *(\x1b\[[0-9;]*[A-Za-z])?ready")
        c.kill("coordinator")
        shows(screen, "no answer")
        c.hpctl("local", "start", "--coordinator")
        shows(screen, r"a0 *(\x1b\[[0-9;]*[A-Za-z])?ready")
        os.write(screen.fd, b"\x03")
        assert os.waitpid(screen.pid, 0)[1] == 0


@test
def help_breaks_between_words_at_the_terminal_s_edge():
    for verb in ("deploy", "rebalance"):
        piped = subprocess.run([HPCTL, verb, "--help"], capture_output=True, text=True)
        assert piped.returncode == 0 and max(map(len, piped.stdout.split("\n"))) > 200, piped
        screen = Terminal(dict(os.environ), verb, "--help", columns=80)
        try:
            while True:
                screen.read()
        except OSError:  # it has ended
            assert os.waitpid(screen.pid, 0)[1] == 0
        lines = screen.seen.split("\r\n")
        assert max(map(len, lines)) <= 80 and screen.seen.split() == piped.stdout.split(), lines


main()
