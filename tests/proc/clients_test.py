"""Client libraries as they are, before the API (client_checks.py). Those that install in seconds are installed for the test where a package index gives them;
HP_CLIENTS_PYTHON names a python that has these or others instead. All of them, and evaluation and load with theirs: tests/long/clients.py."""
import os
import subprocess
import sys
import tempfile

from cluster import DEMO, SCALE, Cluster
from tap import main, skip, test

PACKAGES = {"openai": "2.54.0", "anthropic": "2.12.0", "ollama": "0.6.3", "instructor": "1.17.0", "llm": "0.32.1"}
CHECKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "client_checks.py")


def python(folder):
    """A python that has clients, where it finds them, and which it has to have."""
    named = os.environ.get("HP_CLIENTS_PYTHON")
    if named:
        return named, {}, ["openai"]
    try:
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary", ":all:", "--retries", "0", "--timeout", "10",
                               "--disable-pip-version-check", "--no-cache-dir", "--target", folder, *(f"{k}=={v}" for k, v in PACKAGES.items())],
                              capture_output=True, text=True, timeout=90 * SCALE)
    except subprocess.TimeoutExpired:
        skip("the package index did not give the clients within a minute and a half")
    if done.returncode:
        skip("no package index gave the clients: " + (done.stderr.strip().splitlines() or [""])[-1][:200])
    return sys.executable, {"PYTHONPATH": folder}, list(PACKAGES)


def checks_pass(program, more, *arguments):
    run = subprocess.run([program, CHECKS, *arguments], env={**os.environ, **more, "OPENAI_API_KEY": "none"}, capture_output=True, text=True, timeout=180 * SCALE)
    print(run.stdout, end="")
    assert run.returncode == 0, run.stderr[-2000:]


@test
def unmodified_clients_get_what_they_ask_for():
    with tempfile.TemporaryDirectory() as folder:
        program, more, needed = python(folder)
        with Cluster(agents=2, cores=1) as c:
            c.deploy("demo")
            checks_pass(program, more, c.http, *needed)
            c.deploy("late", DEMO, "--ttft", "1ms")
            c.deploy("gone", DEMO, "--agents", "a1")
            key = c.hpctl("key", "create", "clients")["key"]
            c.kill("a1")
            c.wait("the lost deployment waits", lambda: c.hpctl("describe", "gone")["state"] != "serving")
            c.wait_serving("late")
            checks_pass(program, more, c.http, "refusals", key)


main()
