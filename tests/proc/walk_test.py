"""A newcomer's walk: what README and the tutorial show for one box is typed as it stands there, and does what they say."""
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import urllib.request

from cluster import BUILD, DEMO, ROOT, SCALE
from tap import main, test
from terminal import Terminal

PATH = BUILD + ":" + os.environ["PATH"]


class Newcomer:
    """A home of one's own, and a folder with a clone's examples and programs in it."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="hp-test-")
        self.env = dict(os.environ, PATH=PATH, HOME=self.folder, XDG_STATE_HOME=os.path.join(self.folder, "state"), XDG_CACHE_HOME=os.path.join(self.folder, "cache"), HP_CONFIG_DIR=os.path.join(self.folder, "config"))
        for link, to in (("build", BUILD), ("examples", os.path.join(ROOT, "examples"))):
            os.symlink(to, os.path.join(self.folder, link))
        shutil.copy(DEMO, os.path.join(self.folder, "model.gguf"))
        return self

    def __exit__(self, *_):
        self.sh("hpctl local down --all")
        shutil.rmtree(self.folder, ignore_errors=True)

    def sh(self, line, **more):
        return subprocess.run(["bash", "-c", line], env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=180 * SCALE, **more)


def blocks(document):
    with open(os.path.join(ROOT, document)) as f:
        return re.findall(r"```sh\n(.*?)```", f.read(), re.S)


def lines_of(document, having):
    """The lines of the block that has this, without what they say of themselves."""
    block = next(b for b in blocks(document) if having in b)
    return [re.sub(r"\s+#.*", "", line) for line in block.strip().split("\n")]


def served(home, line):
    """Runs a `hpctl serve` line at a free port until it has been asked something by HTTP."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    serve = subprocess.Popen(line.replace("8080", str(port)).split(), env=home.env, cwd=home.folder, stdout=subprocess.PIPE, text=True)
    try:
        told = serve.stdout.readline()
        assert f"http://127.0.0.1:{port}/v1" in told, told
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Accept": "text/html"}), timeout=30 * SCALE) as page:
            assert "<html" in page.read().decode()
        curl = "".join(serve.stdout.readline() for _ in range(1))
        done = home.sh(curl)  # it prints how it is asked
        assert done.returncode == 0 and "choices" in json.loads(done.stdout), (curl, done)
    finally:
        serve.terminate()
        assert serve.wait(30 * SCALE) == 0


def chatted(home, line):
    t = Terminal(dict(home.env), *line.replace("build/hpctl", "hpctl").replace("./model", home.folder + "/model").replace("examples/", ROOT + "/examples/").split()[1:], "--temperature", "0")
    t.until(r"Ctrl-D ends\r\n")
    t.until(r"> $")
    assert "Havana" in t.say("What is the capital of Cua?\x1b[D\x1b[Db\r")
    os.write(t.fd, b"/exit\r")
    assert os.waitpid(t.pid, 0)[1] == 0


@test
def a_model_file_is_talked_to_as_the_readme_and_the_tutorial_show():
    with Newcomer() as home:
        for line in lines_of("README.md", "hpctl bench ./model.gguf") + lines_of("docs/tutorial.md", "make deps && make -j")[1:] + lines_of("docs/tutorial.md", "hpctl serve examples"):
            if "hpctl chat" in line:
                chatted(home, line)
            elif "hpctl serve" in line:
                served(home, line)
            else:
                done = home.sh(line + (" --prompt 32 --answer 8 --repeat 1" if "hpctl bench" in line else " --max-tokens 16"))
                assert done.returncode == 0 and done.stdout.strip(), (line, done)


@test
def a_cluster_on_this_box_is_used_as_the_readme_and_the_tutorial_show():
    for document, having in (("README.md", "build/hpctl ps; build/hpctl node ls"), ("docs/tutorial.md", "hpctl top --once")):
        with Newcomer() as home:
            for line in lines_of(document, having):
                for command in line.split("; "):
                    if command.endswith("hpctl top"):
                        top = Terminal(home.env, "top")
                        top.until("serving")
                        os.write(top.fd, b"q")
                        assert os.waitpid(top.pid, 0)[1] == 0
                        continue
                    done = home.sh(command)
                    assert done.returncode == 0 and (done.stdout + done.stderr).strip(), (command, done)
                if "hpctl run" in line:
                    page = json.loads(home.sh("hpctl local ls -o json").stdout)[0]["http"]
                    with urllib.request.urlopen(urllib.request.Request(page + "/", headers={"Accept": "text/html"}), timeout=30 * SCALE) as answer:
                        assert "<html" in answer.read().decode()
            assert json.loads(home.sh("hpctl local ls -o json").stdout) == []


@test
def plans_are_made_as_the_tutorial_shows_without_a_cluster():
    with Newcomer() as home:
        plan, paced = lines_of("docs/tutorial.md", "--cluster examples/hpipe-testbed")
        done = home.sh(plan)
        assert done.returncode == 0 and "time to first token" in done.stdout, done
        assert paced.startswith("hpctl local up --name testbed --pace"), paced  # driven by paced_test and `hpctl bench pipeline`


@test
def what_is_installed_runs_and_is_removed_again():
    with Newcomer() as home:
        make = f"env -u MAKEFLAGS -u MAKELEVEL make -s -C {ROOT} -o all BUILD={BUILD} DESTDIR={home.folder}/root PREFIX=/opt/hp"
        done = home.sh(make + " install")
        there = {os.path.relpath(os.path.join(at, f), home.folder + "/root/opt/hp") for at, _, files in os.walk(home.folder + "/root") for f in files}
        assert done.returncode == 0 and {"bin/hpctl", "bin/hp-agent", "bin/hp-coordinator", "share/man/man1/hpctl-deploy.1", "share/man/man8/hp-agent.8", "share/bash-completion/completions/hpctl"} <= there, (done, there)
        assert home.sh("root/opt/hp/bin/hpctl run ./model.gguf 'What is the capital of Cuba?' --temperature 0").stdout.strip().endswith("Havana.")
        if shutil.which("man"):
            assert "hpctl deploy" in home.sh("man -l root/opt/hp/share/man/man1/hpctl-deploy.1").stdout
        assert home.sh(make + " uninstall").returncode == 0
        left = [f for _, _, files in os.walk(home.folder + "/root") for f in files]
        assert not left, left


@test
def shells_complete_verbs_options_and_names():
    with Newcomer() as home:
        assert home.sh("hpctl local up --agents 2 && hpctl deploy model.gguf --name mine").returncode == 0
        asks = {"hpctl des": "describe", "hpctl describe ": "mine", "hpctl node drain ": "a0", "hpctl deploy x --kv q": "q8_0", "hpctl ps --con": "--context", "hpctl deploy x --agents a0,": "a0,a1", "hpctl context use ": "local", "hpctl bench mod": "model.gguf"}
        for typed, wanted in asks.items():
            words = typed.split(" ")
            array = " ".join(f"'{w}'" for w in words)
            said = home.sh(f"source <(hpctl completion bash); COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _hpctl; echo \"${{COMPREPLY[@]}}\"")
            assert wanted in said.stdout.split(), (typed, said)
            if shutil.which("fish"):
                said = subprocess.run(["fish", "-c", f"hpctl completion fish | source; complete -C '{typed}'"], env=home.env, cwd=home.folder, capture_output=True, text=True, timeout=60 * SCALE)
                assert wanted in said.stdout.split(), (typed, said)
        if not shutil.which("zsh"):
            return
        zsh = subprocess.run(["zsh", "-fn"], input=home.sh("hpctl completion zsh").stdout, env=home.env, capture_output=True, text=True, timeout=60 * SCALE)
        assert zsh.returncode == 0 and not zsh.stderr, zsh


main()
