"""What hpctl shows of a cluster on a terminal, while it goes on and when it is interrupted: `top`, lists, progress, an answer of `chat`."""
import os
import re
import signal
import subprocess
import threading
import time

from cluster import Cluster, DEMO, SCALE
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
        assert "-17" not in narrow.shown()  # what has no room is in no other row
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
        assert sum("demo" in a["stages"] for a in agents.values()) == demo["stages"], figures
        os.write(screen.fd, b"q")
        assert os.waitpid(screen.pid, 0)[1] == 0
        text = c.run("top", "--once", "--interval", "100ms")
        assert text.returncode == 0 and "TOKENS/S" in text.stdout and "a1 " in text.stdout, text
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
        for verb, key in (("local", '"coordinator"'), ("context", '"control"')):
            lists = subprocess.Popen([HPCTL, verb, "ls", "--watch", "-o", "json"], env=c.env, stdout=subprocess.PIPE, text=True)
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
def what_takes_long_says_how_much_time_is_left():
    with Cluster(agents=1, cores=1) as c:
        screen = Terminal(c.env, "profile", DEMO, "--budget", "3")
        screen.until(r"\[#*\.*\] +[0-9]+ %  [1-3] s left  a0 measures ")


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

    def stopped(self, keys, *, begun=False):
        """What a Ctrl-C shows behind these keys, which end with one or ask for something first; with `begun`, once something of the answer is there. None: that was over before."""
        chat, pause = self.chat, 0.001
        os.kill(self.agent, signal.SIGSTOP)
        try:
            os.write(chat.fd, keys)
            if not keys.endswith(b"\x03"):
                self.c.wait("it has been asked", self.asked)
                chat.shown()  # what was typed, all of which is shown before it is asked
                chat.seen = ""
                while begun and not chat.shown():  # a moment at a time, of which the answer takes many
                    os.kill(self.agent, signal.SIGCONT)
                    time.sleep(pause)
                    os.kill(self.agent, signal.SIGSTOP)
                    pause = min(2 * pause, 1)
                    time.sleep(0.05)  # for what is on its way
                if re.search(r"\n> $", chat.shown()):
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


main()
