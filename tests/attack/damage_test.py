"""Files that were damaged: keys, contexts, the coordinator's store, agents' weights. Whoever needs one says which it is, within seconds; nobody dies of it or waits for ever."""
# Waits: for programs that say what is wrong with their files.
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import BUILD, Cluster, DEMO, Failed, SCALE
from tap import main, test

CHANCE = random.Random(11)
Z85 = "0123456789abcdefghijklmnopqrstuvwxyz"


def path(c, *parts):
    return os.path.join(c.folder, "state", *parts)


def read(file, mode="r"):
    with open(file, mode) as f:
        return f.read()


def write(file, content):
    """Over what is there, so that owner and mode stay."""
    with open(file, "r+b" if os.path.exists(file) else "wb") as f:
        f.truncate(0)
        f.write(content if isinstance(content, bytes) else content.encode())


def flip(text, at):
    """Another character that a key may have."""
    return text[:at] + Z85[(Z85.find(text[at].lower()) + 1) % len(Z85)] + text[at + 1:]


def log_of(c, *parts):
    return read(path(c, *parts, "log"))


def coordinator(c, seconds=10):
    """Started by hand where its predecessor ended: its exit status (None: it serves) and what it said."""
    addresses = json.loads(read(path(c, "coordinator", "coordinator.json")))
    process = subprocess.Popen([os.path.join(BUILD, "hp-coordinator"), "--dir", path(c, "coordinator"), "--listen", addresses["control"], "--http", addresses["http"]],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + seconds * SCALE
    while process.poll() is None and not serves(c) and time.monotonic() < until:
        time.sleep(0.05)
    served = process.poll() is None
    if served:
        process.terminate()
    _, said = process.communicate(timeout=20 * SCALE)
    assert not served or process.returncode == 0, said
    return None if served else process.returncode, said


def serves(c):
    try:
        return c.request("GET", "/health", timeout=5)[0] == 200
    except OSError:
        return False


def refused(c, verb, code, *words, within_s=8):
    began = time.monotonic()
    try:
        c.hpctl(*verb)
    except Failed as e:
        assert e.code == code and all(w in e.message for w in words), e
        assert time.monotonic() - began < within_s * SCALE, time.monotonic() - began
        return
    raise AssertionError(f"{verb} went well")


@test
def a_damaged_key_file_is_named_by_whoever_needs_it():
    with Cluster(agents=1, cores=1) as c:
        c.kill("a0")
        c.kill("coordinator")
        for name in ("server.key", "admin.key"):
            file = path(c, "coordinator", name)
            whole = read(file)
            for damaged in (flip(whole, 10), flip(whole, 60), whole[:50], "", CHANCE.randbytes(96)):
                write(file, damaged)
                rc, said = coordinator(c)
                assert rc not in (None, 0) and rc > 0 and name in said, (name, rc, said)
            write(file, whole)
        c.hpctl("local", "start", "--coordinator")
        file = path(c, "agents", "a0", "agent.key")
        whole = read(file)
        for damaged in (flip(whole, 10), whole[:50], ""):
            write(file, damaged)
            refused(c, ("local", "start", "--agent", "a0"), "io", "agent.key")
        write(file, whole)
        c.hpctl("local", "start", "--agent", "a0")
        assert c.member("a0") == "ready"


@test
def an_agent_says_that_its_coordinator_has_another_key_than_it_expects():
    with Cluster(agents=1, cores=1) as c:
        c.kill("a0")
        file = path(c, "agents", "a0", "coordinator.key")
        whole = read(file)
        arguments = [os.path.join(BUILD, "hp-agent"), "--join", json.loads(read(path(c, "coordinator", "coordinator.json")))["control"],
                     "--dir", path(c, "agents", "a0"), "--name", "a0", "--network", "lo"]
        write(file, flip(whole, 12))
        with open(path(c, "agents", "a0", "log"), "a") as log:
            agent = subprocess.Popen(arguments, stderr=log)
        try:
            c.wait("the agent says so", lambda: "coordinator_unproven" in log_of(c, "agents", "a0"), 8)
            c.wait("the coordinator says so", lambda: "other_key_expected" in log_of(c, "coordinator"), 5)
        finally:
            agent.kill()
            agent.wait()
        for damaged in (whole[:20], "", "x" * 40 + '"'):
            write(file, damaged)
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=20 * SCALE)
            assert done.returncode > 0 and "coordinator.key: " in done.stderr and "damaged" in done.stderr or "empty" in done.stderr, done.stderr
        write(file, flip(whole, 12))
        c.hpctl("local", "start", "--agent", "a0", timeout=20)
        assert c.member("a0") == "ready" and read(file) == whole


@test
def hpctl_says_that_a_coordinator_has_another_key_than_its_context():
    with Cluster(agents=1, cores=1) as c:
        file = os.path.join(c.folder, "config", "contexts", "local.json")
        whole = read(file)
        context = json.loads(whole)
        for key, code, word in (("server_key", "denied", "does not prove itself"), ("admin_public_key", "malformed", "damaged"), ("admin_secret_key", "malformed", "damaged")):
            write(file, json.dumps(dict(context, **{key: flip(context[key], 5)})))
            refused(c, ("ps",), code, word)
            write(file, json.dumps(dict(context, **{key: context[key][:-3]})))
            refused(c, ("ps",), "malformed", "damaged")
        for damaged in (whole[: len(whole) // 2], "", CHANCE.randbytes(300), "[]"):
            write(file, damaged)
            refused(c, ("ps",), "malformed", "local.json")
        write(file, whole)
        # the keys of another coordinator, whole, in the place of this one's
        other = os.path.join(c.folder, "other")
        subprocess.run([os.path.join(BUILD, "hp-coordinator"), "--dir", other, "--init"], check=True, timeout=20)
        c.kill("coordinator")
        shutil.copy(os.path.join(other, "server.key"), path(c, "coordinator", "server.key"))
        addresses = json.loads(read(path(c, "coordinator", "coordinator.json")))
        process = subprocess.Popen([os.path.join(BUILD, "hp-coordinator"), "--dir", path(c, "coordinator"), "--listen", addresses["control"], "--http", addresses["http"]],
                                   stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5 * SCALE)
            refused(c, ("ps",), "denied", "does not prove itself", addresses["control"])
            c.wait("the agent says so", lambda: "coordinator_unproven" in log_of(c, "agents", "a0"), 15)
        finally:
            process.terminate()
            process.wait(20)


def store_damaged(file, how):
    size = os.path.getsize(file)
    if how == "cut in half":
        os.truncate(file, size // 2 // 512 * 512 + 100)
    elif how == "empty":
        os.truncate(file, 0)
    elif how == "random pages":
        with open(file, "r+b") as f:
            for at in range(4096, max(size, 8192), 4096):
                f.seek(at)
                f.write(CHANCE.randbytes(4096))
    elif how == "random head":
        with open(file, "r+b") as f:
            f.write(CHANCE.randbytes(100))
    elif how == "text":
        write(file, "this is no database\n" * 300)
    else:  # a foreign schema
        os.unlink(file)
        db = sqlite3.connect(file)
        if how == "foreign tables":
            db.execute("CREATE TABLE records (id INTEGER PRIMARY KEY, what TEXT)")
            db.execute("INSERT INTO records (what) VALUES ('hello')")
            db.execute("PRAGMA user_version=1")
        else:  # a record of every kind that says nothing
            db.execute("CREATE TABLE records (kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID")
            db.execute("PRAGMA user_version=1")
            for kind in ("meta", "member", "invite", "deployment", "model", "profile", "link", "key", "bad", "drift"):
                for key, value in (("", b""), ("x", CHANCE.randbytes(100)), ("boot", b"-1"), ("\xff", b"{}"), ("y", b"[" * 5000), ("z", b'{"name": 7}')):
                    db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (kind, key, value))
        db.commit()
        db.close()


@test
def a_damaged_store_ends_no_coordinator_without_a_word():
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        c.kill("coordinator", signal.SIGTERM)
        c.wait("the coordinator ended", lambda: c.local()["coordinator"]["state"] == "dead", 20)
        file, keep = path(c, "coordinator", "store.db"), os.path.join(c.folder, "whole")
        sqlite3.connect(file).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        shutil.copy(file, keep)
        for how in ("cut in half", "empty", "random pages", "random head", "text", "foreign tables", "hostile records"):
            for beside in ("-wal", "-shm", "-journal"):
                if os.path.exists(file + beside):
                    os.unlink(file + beside)
            shutil.copy(keep, file)
            store_damaged(file, how)
            rc, said = coordinator(c)
            print(f"# {how}: {'serves' if rc is None else rc}: {said.strip().splitlines()[0][:150]}")
            if rc is None:  # goes on with what it could read, and says what it could not
                assert "record_put_aside" in said or "record_dropped" in said, (how, said)
            else:
                assert rc > 0 and "store.db" in said, (how, rc, said)
        shutil.copy(keep, file)
        assert coordinator(c)[0] is None


@test
def damaged_weights_are_fetched_again_or_named():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        ask = lambda: c.answer("demo", "Tell me a story.", ignore_eos=True, max_tokens=60)
        whole = ask()
        model = os.path.join(path(c, "agents", "a1", "store", "models"), os.listdir(path(c, "agents", "a1", "store", "models"))[0])
        weights = os.path.join(model, "files", os.path.basename(DEMO))

        def random_weights():
            with open(weights, "r+b") as f:
                for at in range(0, os.path.getsize(weights), 65536):
                    f.seek(at)
                    f.write(CHANCE.randbytes(16))

        cases = {
            "have random": lambda: write(os.path.join(model, "have"), CHANCE.randbytes(304)),
            "have cut": lambda: os.truncate(os.path.join(model, "have"), 5),
            "have huge": lambda: write(os.path.join(model, "have"), CHANCE.randbytes(3 << 20)),
            "manifest random": lambda: write(os.path.join(model, "manifest"), CHANCE.randbytes(40000)),
            "manifest cut": lambda: os.truncate(os.path.join(model, "manifest"), 1000),
            "manifest empty": lambda: os.truncate(os.path.join(model, "manifest"), 0),
            "weights flipped": random_weights,
            "weights cut": lambda: os.truncate(weights, 100000),
            "weights gone": lambda: os.unlink(weights),
            "a folder in their place": lambda: (os.unlink(weights), os.mkdir(weights)),
        }
        for how, damage in cases.items():
            c.kill("a1")
            c.wait("a1 is lost", lambda: c.member("a1") == "lost", 20)
            damage()
            c.hpctl("local", "start", "--agent", "a1")
            if c.hpctl("describe", "demo")["state"] != "serving" or len(c.hpctl("describe", "demo")["stages"]) < 2:
                c.hpctl("undeploy", "demo")
                c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--upload")
            c.wait_serving()
            assert ask() == whole, how
            assert os.path.getsize(weights) > 0, how
            print(f"# {how}: healed")


main()
