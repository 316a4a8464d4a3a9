"""A model file without a cluster: `hpctl run`, `chat` and `serve` begin one of their own, which ends with them, however they end."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from cluster import DEMO, SCALE, ended
from tap import main, test
from terminal import HPCTL, Terminal, rows_of


class Home:
    """Where a user keeps what programs remember; nothing may be left there."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="hp-test-")
        self.env = dict(os.environ, XDG_STATE_HOME=os.path.join(self.folder, "state"), XDG_CACHE_HOME=os.path.join(self.folder, "cache"), HP_CONFIG_DIR=os.path.join(self.folder, "config"))
        return self

    def __exit__(self, *why):
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *args, **more):
        return subprocess.run([HPCTL, *args], env=self.env, capture_output=True, text=True, timeout=60 * SCALE, **more)

    def is_empty(self):
        """But for what the next run need not find out again."""
        return [f for at, _, files in os.walk(self.folder) for f in files if not at.startswith(os.path.join(self.folder, "cache", "hp"))] == [] and not os.path.exists(self.env["HP_CONFIG_DIR"]) and os.listdir(os.path.join(self.folder, "state", "hp")) == []

    def processes(self):
        """Those of this test: all have its folder in their environment."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if self.folder.encode() in f.read():
                        found.append(int(pid))
            except OSError:
                pass
        return found


def wait(what, is_so, seconds=20):
    until = time.monotonic() + seconds * SCALE
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def listening(pid):
    """Where a process listens for TCP: HOST:PORT of IPv4, "?" for others."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    found = []
    for family in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{family}") as f:
            for row in map(str.split, list(f)[1:]):
                if row[3] == "0A" and f"socket:[{row[9]}]" in inodes:
                    host, port = row[1].split(":")
                    found.append(".".join(str(b) for b in reversed(bytes.fromhex(host))) + f":{int(port, 16)}" if family == "tcp" else "?")
    return found


@test
def a_file_answers_and_leaves_nothing():
    with Home() as home:
        asked = ("What is the capital of Cuba?", "--temperature", "0", "--max-tokens", "8")
        first = home.run("run", DEMO, *asked, "--compute", "f32", "-o", "json")
        assert first.returncode == 0, first.stderr
        said = json.loads(first.stdout)
        assert said["model"] == "demo-q8_0" and said["usage"]["completion_tokens"] == 8 and said["text"], said
        assert home.is_empty() and not home.processes(), os.listdir(home.folder)
        chat = home.run("chat", DEMO, "--temperature", "0", "--max-tokens", "8", "--compute", "f32", "--max-context", "256", input="What is the capital of Cuba?\n/exit\n")
        assert chat.returncode == 0 and said["text"] in chat.stdout, (chat.stdout, chat.stderr)
        assert home.is_empty() and not home.processes()
        kept = [os.path.join(at, f) for at, _, files in os.walk(os.path.join(home.folder, "cache", "hp")) for f in files]
        assert {f.split("/hp/")[1].split("/")[0] for f in kept} == {"measured", "names"}, kept
        for args, rc, says in ((("run", "./nowhere.gguf", "hi"), 4, "no such model"), (("chat", "demo", "--kv", "f16"), 2, "--kv"), (("serve", DEMO, "--port", "99999"), 2, "no port"),
                               (("serve", DEMO, "--name", "a/b"), 2, "--name"), (("run", DEMO, "hi", "--kv", "f99"), 1, "f99"), (("run", __file__.replace(".py", "/"), "hi"), 4, "no such model"),
                               (("run", DEMO), 2, "is a model file, and a prompt for it is missing"), (("stop", "demo"), 2, "did you mean `hpctl undeploy`?"), (("pull", "demo"), 2, "did you mean `hpctl deploy`?")):
            done = home.run(*args)
            assert done.returncode == rc and says in done.stderr, (args, done)
        assert not home.processes()
        wait("nothing is left", home.is_empty)


@test
def where_nobody_watches_one_line_tells_of_what_takes_long():
    with Home() as home:
        for verb in ("run", "chat"):  # the first one measures the box; a GPU or its plugin would have a line of its own
            done = home.run(verb, DEMO, "--device", "cpu", *(("Hello",) if verb == "run" else ()), "--max-tokens", "2", input="Hello\n" if verb == "chat" else None)
            assert done.returncode == 0 and done.stdout.strip(), done
            assert done.stderr.splitlines() in ([], ["getting the model ready"]), done.stderr


@test
def an_answer_that_cannot_be_written_is_an_error():
    with Home() as home:
        for args in (("run", DEMO, "Hello", "--max-tokens", "2"), ("model", "describe", DEMO), ("model", "describe", DEMO, "-o", "json"), ("run", "--help"), ("--help",)):
            with open("/dev/full", "w") as full:
                done = subprocess.run([HPCTL, *args], env=home.env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60 * SCALE)
            assert done.returncode == 1 and done.stderr.count("standard output: ") == 1, (args, done)


@test
def a_served_file_is_reached_by_any_client_until_it_ends():
    for how in (signal.SIGINT, signal.SIGKILL):
        with Home() as home:
            serve = subprocess.Popen([HPCTL, "serve", DEMO, "--port", "0", "--name", "mine", "-o", "json"], env=home.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            told = ""
            while not told.rstrip().endswith("}"):
                line = serve.stdout.readline()
                assert line, serve.stderr.read()
                told += line
            told = json.loads(told)
            body = json.dumps({"model": told["name"], "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}).encode()
            with urllib.request.urlopen(urllib.request.Request(told["api"] + "/chat/completions", body, {"Content-Type": "application/json"}), timeout=20 * SCALE) as answer:
                assert told["name"] == "mine" and json.load(answer)["usage"]["completion_tokens"] == 4
            mine = [p for p in home.processes() if p != serve.pid]
            used = [os.path.join(at, f) for at, _, files in os.walk(os.path.join(home.folder, "state")) for f in files if f.endswith(".gguf") and "/agent/" in at]
            assert [os.path.realpath(f) for f in used] == [os.path.realpath(DEMO)], used  # where it lies, and no copy
            # One process, beside the one that removes its folder however it ends; of it listens the API alone, on loopback.
            assert len(mine) == 1 and len(os.listdir(f"/proc/{mine[0]}/task")) == 1 and len(os.listdir(f"/proc/{serve.pid}/task")) > 4, mine
            assert listening(serve.pid) == [f"127.0.0.1:{told['http'].rsplit(':', 1)[1]}"], listening(serve.pid)
            serve.send_signal(how)
            assert serve.wait(20 * SCALE) == (0 if how == signal.SIGINT else -signal.SIGKILL)
            wait("its processes end", lambda: all(ended(p) for p in mine))
            wait("nothing is left", home.is_empty)


class Serving:
    """`hpctl serve` of a copy of the demo model."""

    def __init__(self, home):
        self.model = os.path.join(home.folder, "own.gguf")
        shutil.copyfile(DEMO, self.model)
        self.log = os.path.join(home.folder, "said")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([HPCTL, "serve", self.model, "--port", "0", "--compute", "f32", "-o", "json"], env=home.env, stdout=subprocess.PIPE, stderr=log, text=True)
        told = ""
        while not told.rstrip().endswith("}"):
            line = self.process.stdout.readline()
            assert line, self.said()
            told += line
        self.told = json.loads(told)

    def answer(self):
        body = json.dumps({"model": self.told["name"], "prompt": "Hello", "max_tokens": 6, "temperature": 0}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.told["api"] + "/completions", body, {"Content-Type": "application/json"}), timeout=20 * SCALE) as a:
                return a.status, json.load(a)["choices"][0]["text"]
        except urllib.error.HTTPError as e:
            return e.code, json.load(e)["error"]["message"]

    def why(self):
        try:
            return urllib.request.urlopen(self.told["http"] + "/ready", timeout=20 * SCALE).read().decode()
        except urllib.error.HTTPError as e:
            return e.read().decode()

    def said(self):
        """To whoever serves."""
        with open(self.log) as log:
            return log.read()

    def end(self):
        """What it said up to its end."""
        assert self.process.poll() is None
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(20 * SCALE) == 0
        return self.said()


@test
def a_file_that_becomes_shorter_while_it_is_served_is_an_error_in_words():
    with Home() as home:
        s = Serving(home)
        assert s.answer()[0] == 200
        os.truncate(s.model, 4096)
        status, said = s.answer()
        assert status == 503 and "the file has become shorter" in said, (status, said)
        changed = f"{s.model}: the file has changed since it was opened"
        wait("it has been tried again", lambda: changed in s.why())  # who comes before that waits for it
        status, said = s.answer()
        assert status == 503 and changed in said, (status, said)
        wait("whoever serves is told", lambda: "does not serve now" in s.said())
        time.sleep(1.2)  # a look takes place twice a second: the next ones say nothing new
        said = s.end()
        assert said.count("does not serve now") == 1 and changed in said and "begin anew" in said, said


@test
def a_file_that_is_written_to_while_it_is_served_gives_no_other_answer():
    with Home() as home:
        s = Serving(home)
        status, text = s.answer()
        assert status == 200
        time.sleep(0.01)
        os.utime(s.model)  # the same content, which is read again
        wait("it serves again", lambda: s.answer() == (200, text))
        with open(s.model, "r+b") as f:
            f.seek(-200000, os.SEEK_END)
            f.write(b"\x55" * 100000)
        status, said = s.answer()
        assert status == 503 and "wrote to the file" in said, (status, said)
        wait("whoever serves is told", lambda: "does not serve now" in s.said())
        status, said = s.answer()
        assert status == 503 and "does not serve now" in said, (status, said)
        wait("the true reason is told", lambda: f"of {s.model} are not what they were when it was opened" in s.why())
        assert "does not serve now" in s.end()


@test
def requests_under_way_are_answered_and_a_second_signal_ends_at_once():
    for again in (False, True):
        with Home() as home:
            serve = subprocess.Popen([HPCTL, "serve", DEMO, "--port", "0", "-o", "json"], env=home.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            told = ""
            while not told.rstrip().endswith("}"):
                told += serve.stdout.readline()
            told = json.loads(told)
            body = {"model": told["name"], "messages": [{"role": "user", "content": "Hello"}], "ignore_eos": True, "max_tokens": 1500, "stream": True}
            answer = urllib.request.urlopen(urllib.request.Request(told["api"] + "/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}), timeout=60 * SCALE)
            assert answer.readline().startswith(b"data: ")
            serve.send_signal(signal.SIGTERM)
            if again:
                while serve.poll() is None:  # the first may not have been heeded yet
                    serve.send_signal(signal.SIGTERM)
                    time.sleep(0.01)
                assert serve.returncode in (0, -signal.SIGTERM), serve.returncode
            else:
                rest = answer.read().decode()
                assert "[DONE]" in rest or "is stopping" in rest, rest[-300:]
                assert serve.wait(30 * SCALE) == 0
            wait("nothing is left", lambda: not home.processes() and home.is_empty())


@test
def words_are_not_broken_at_the_right_edge():
    with Home() as home:
        asked, wide = ("Tell me a story.", "--temperature", "0", "--max-tokens", "120"), 22
        said = home.run("run", DEMO, *asked).stdout.split()
        t = Terminal(home.env, "chat", DEMO, *asked[1:], columns=wide)
        t.until(r"> $")
        rows = rows_of(t.say(asked[0] + "\r").split("story.\r\n")[1], wide)
        assert rows.pop() == ">" and len(rows) > 8 and max(map(len, rows)) <= wide, rows
        assert " ".join(filter(None, rows)).split() == said and any(len(w) > 4 for w in said), (rows, said)
        os.write(t.fd, b"/exit\r")
        assert os.waitpid(t.pid, 0)[1] == 0


@test
def a_conversation_on_a_terminal():
    with Home() as home:
        saved = os.path.join(home.folder, "saved.json")
        t = Terminal(dict(home.env, LC_ALL="C", EDITOR=r"sed -i 's/Cuba/Peru/;s/Zed/\xff/'"), "chat", DEMO, "--temperature", "0", "--max-tokens", "400")
        t.until(r"Ctrl-D ends\r\n")
        os.write(t.fd, b"\x03")  # also before the line editor has the terminal
        t.until(r"> $")
        assert "/regen" in t.say("/help\r") and "no command /nope" in t.say("/nope\r")
        cuba = t.say("garbage\x03What is the capital of Cua?\x1b[D\x1b[Db\r")  # Ctrl-C forgets the line; an arrow goes back
        assert "Havana" in cuba, cuba
        assert "Havana" in t.say("/regen\r")
        peru = t.say("/edit\r")
        assert "Lima" in peru and "Havana" not in peru, peru
        assert "at" in t.say("/stats\r") and "prompt tokens" in t.say("What is the capital of Cuba?\r")
        t.say("/save " + saved + "\r")
        with open(saved) as f:
            said = [m["content"] for m in json.load(f)["messages"]]
        assert len(said) == 4 and "Peru" in said[0] and "Lima" in said[1] and "Cuba" in said[2], said
        assert "anew" in t.say("/clear\r")  # ollama's word for /reset
        assert "told this" in t.say("/system Be brief.\r") and "told nothing" in t.say("/system\r")
        assert "4 messages" in t.say("/load " + saved + "\r") and "no such" not in t.say("/load /nowhere\r").lower().replace("no such file", "")
        for typed in ('\"\"\"\rWhat is\rthe capital of Cuba?\r\"\"\"\r', '\"\"\"What is\rthe capital of Cuba?\"\"\"\r'):
            t.say(typed)
        t.say("/save " + saved + "\r")
        with open(saved) as f:
            assert [m["content"] for m in json.load(f)["messages"][4::2]] == ["What is\nthe capital of Cuba?"] * 2
        long = {"messages": [{"role": "user", "content": "Cuba " * 100000}, {"role": "assistant", "content": "Havana"}]}
        with open(saved, "w") as f:
            json.dump(long, f)
        t.say("/load " + saved + "\r")
        assert "context" in t.say("/regen\r") and "context" in t.say("/edit\r")  # what fails leaves what was there
        t.say("/save " + saved + "\r")
        with open(saved) as f:
            assert json.load(f)["messages"] == long["messages"]
        zed = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is Zed?"}, {"role": "assistant", "content": "Nobody."}]}
        with open(saved, "w") as f:
            json.dump(zed, f)
        t.say("/load " + saved + "\r")
        assert "not valid UTF-8" in t.say("/edit\r")  # nor does what cannot be sent
        t.say("/save " + saved + "\r")
        with open(saved) as f:
            assert json.load(f)["messages"] == zed["messages"]
        t.say("/clear\r")
        t.say('"""\rof what was meant\r', r"\n\. $")
        t.say("\x03")  # forgets the lines before it, too
        t.say("Was heißt 日本語\x1b[D\x1b[D\x1b[D„\r")  # though no locale is named
        t.say("/save " + saved + "\r")
        with open(saved) as f:
            assert [m["content"] for m in json.load(f)["messages"]][0] == "Was heißt „日本語"
        pasted = 'It is\n"""\nof \\\n'
        t.say("\x1b[200~" + pasted.replace("\n", "\r") + "old\x1b[201~", r"\n\. old$")  # asks nothing yet
        t.say(" age.\r")
        t.say("/save " + saved + "\r")
        with open(saved) as f:
            assert [m["content"] for m in json.load(f)["messages"]][2] == pasted + "old age."
        os.write(t.fd, b"\x04")
        t.until(r"\^D\r\n$")  # where a shell's prompt begins
        assert os.waitpid(t.pid, 0)[1] == 0
        history = os.path.join(home.folder, "state", "hp", "chat-history")
        assert os.stat(history).st_mode & 0o777 == 0o600 and "Cuba" in open(history).read()


main()
