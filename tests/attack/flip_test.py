"""A bit flipped in every file that a coordinator keeps: at its beginning, its end and somewhere between. Whoever reads it afterwards serves as before, or says which file it is, within
seconds: never a signal, never a wait without end, never another answer."""
# Waits: for coordinators that start.
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import BUILD, Cluster, DEMO, Failed, SCALE
from tap import main, test

SEED = int(os.environ.get("HP_SEED", "31"))
CHANCE = random.Random(SEED)
ASK = {"model": "demo", "prompt": "Once upon a time", "temperature": 0, "max_tokens": 30, "ignore_eos": True}


def files_of(folder):
    """All that is kept there, but for logs, which are only written."""
    found = []
    for at, _, names in os.walk(folder):
        found += [os.path.join(at, name) for name in names if name not in ("log", "lock")]
    return sorted(path for path in found if os.path.isfile(path) and os.path.getsize(path))


def flip(path, where):
    size = os.path.getsize(path)
    at = {"first": 0, "last": size - 1, "middle": CHANCE.randrange(size)}[where]
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 1 << CHANCE.randrange(8)]))
    return at


class Kept:
    """A state folder whose process has ended; restored whole each time."""

    def __init__(self, folder, beside):
        self.folder, self.copy = folder, beside
        shutil.copytree(folder, beside)

    def restore(self):
        shutil.rmtree(self.folder)
        shutil.copytree(self.copy, self.folder)


def end(pid, how=signal.SIGTERM):
    os.kill(pid, how)
    until = time.monotonic() + 20 * SCALE
    while os.path.exists(f"/proc/{pid}/exe") and time.monotonic() < until:
        time.sleep(0.02)


def answered(c, whole, seconds=25):
    """Whether the deployment answers again; then it must be the same answer."""
    until = time.monotonic() + seconds * SCALE
    while time.monotonic() < until:
        try:
            status, body = c.request("POST", "/v1/completions", ASK, timeout=20)
            if status == 200:
                assert body["choices"][0]["text"] == whole, body
                return True
        except OSError:
            pass
        time.sleep(0.1)
    return False


@test
def a_bit_in_every_file_of_a_coordinator():
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        whole = c.request("POST", "/v1/completions", ASK)[1]["choices"][0]["text"]
        folder = os.path.join(c.folder, "state", "coordinator")
        end(c.local()["coordinator"]["pid"])
        addresses = json.loads(open(os.path.join(folder, "coordinator.json")).read())
        command = [os.path.join(BUILD, "hp-coordinator"), "--dir", folder, "--listen", addresses["control"], "--http", addresses["http"]]
        kept = Kept(folder, os.path.join(c.folder, "kept"))
        for path in files_of(folder):
            name = os.path.relpath(path, folder)
            for where in ("first", "middle", "middle", "last"):
                kept.restore()
                at = flip(path, where)
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", env=c.env)
                try:
                    served = False
                    until = time.monotonic() + 12 * SCALE  # which of the two it does, serve or live, is not judged
                    while process.poll() is None and not served and time.monotonic() < until:
                        served = answered(c, whole, 0.3)
                    code = process.poll()
                    if code is None:
                        # It lives: whatever the damage took away, it says how things are, at once.
                        began = time.monotonic()
                        states = [(d["name"], d["state"]) for d in control(c, "ps")]
                        assert time.monotonic() - began < 8 * SCALE
                        process.terminate()
                    said = process.communicate(timeout=30 * SCALE)[1]
                finally:
                    process.kill()
                    process.wait()
                verdict = "serves" if served else f"lives: {states}" if code is None else f"exit {code}: {said.strip().splitlines()[-1][:120] if said.strip() else ''}"
                print(f"# {name} at {at}: {verdict}")
                assert code is None or (code > 0 and said.strip()), (SEED, name, at, code, said[-2000:])
                assert served or code is None or name in said or os.path.basename(name).split("-")[0] in said, (SEED, name, at, said[-2000:])
        kept.restore()
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=c.env)
        try:
            assert answered(c, whole)
        finally:
            end(process.pid)
            process.wait()


def control(c, *verb):
    """A verb's answer; a refusal that has words is one too."""
    try:
        return c.hpctl(*verb, timeout=30)
    except Failed as e:
        assert e.message, e
        return []


main()
