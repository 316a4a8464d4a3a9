"""A disk that is full: changes are refused by name, what serves goes on, and the coordinator starts with it."""
import collections
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time

from cluster import ROOT, SCALE, Cluster, DEMO, Failed
from tap import main, test

PROMPT = {"model": "demo", "messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0, "ignore_eos": True, "max_tokens": 400}


def text_of(event):
    return event["choices"][0]["delta"].get("content", "") if event and event.get("choices") else ""


def pid_of(c):
    return c.local()["coordinator"]["pid"]


def room(pid, there_is):
    """A process none of whose files may grow has what a full disk gives: failed writes."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY if there_is else 0, resource.RLIM_INFINITY))


def refused(c, *verb):
    try:
        c.hpctl(*verb)
    except Failed as e:
        assert "read only" in e.message or "not stored" in e.message, e
        return
    raise AssertionError(f"{verb} was taken with a full disk")


def start_again(c, full):
    """The coordinator as it was started, on the ports that it had."""
    pid = pid_of(c)
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        command = [word.decode() for word in f.read().split(b"\0")[:-1]]
    folder = command[command.index("--dir") + 1]
    with open(os.path.join(folder, "coordinator.json")) as f:
        addresses = json.load(f)
    os.kill(pid, signal.SIGKILL)
    for option, key in (("--listen", "control"), ("--http", "http")):
        command[command.index(option) + 1] = addresses[key]
    time.sleep(0.2)
    return started(c, command, 0 if full else resource.RLIM_INFINITY)


def limited(c, command, limit, **more):
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=c.env, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)), **more)


def started(c, command, limit):
    """It listens. One of its ports may be that of somebody's connection when it is free again: then it ends, says so, and is started once more."""
    for _ in range(20):
        process = limited(c, command, limit, stderr=subprocess.PIPE, text=True, errors="replace")
        said = []
        for line in process.stderr:
            said.append(line)
            if " listening control=" in line:
                threading.Thread(target=lambda out: collections.deque(out, 0), args=(process.stderr,), daemon=True).start()
                return process
        process.wait()
        assert "already in use" in "".join(said), "".join(said)
        time.sleep(1)
    raise AssertionError("its ports stay in use")


@test
def a_change_that_was_under_way_when_the_disk_filled_is_told_as_not_stored():
    """A verb that takes its time is taken before anything fails, and answered after it."""
    with Cluster(agents=2, cores=1, memory="256MB") as c, tempfile.TemporaryDirectory(prefix="hp-full-") as folder:
        c.deploy("demo", DEMO, "--agents", "a0", "--max-context", "256")
        toy = {"name": "toy", "model": os.path.join(ROOT, "examples", "pools", "toy.onnx"), "weight": 1, "slo_s": 0.25}
        workload = os.path.join(folder, "w.json")
        for slo_s in (0.5, 0.25):
            with open(workload, "w") as f:
                json.dump({"format": "hp-workload/1", "slo_margin": 0.4, "max_stages": 1, "models": [dict(toy, slo_s=slo_s)]}, f)
            if slo_s == 0.5:
                c.hpctl("apply", "-f", workload, "--agents", "a1")  # measured, so that another one takes no time

        def writable():
            return re.search(r"^hp_read_only 0", c.request("GET", "/metrics")[1], re.M)

        for verb in (("apply", "-f", workload, "--agents", "a1"), ("deploy", DEMO, "--name", "other", "--agents", "a0", "--max-context", "256"), ("undeploy", "demo")):
            room(pid_of(c), False)
            try:
                c.hpctl(*verb)
                raise AssertionError(f"{verb} was acknowledged with a full disk")
            except Failed as e:
                assert "done, but not stored" in e.message, (verb, e)
            room(pid_of(c), True)
            c.wait("it is stored", writable)
        c.kill("coordinator")
        c.hpctl("local", "start", "--coordinator")
        assert sorted(d["name"] for d in c.hpctl("ps")) == ["other"] and c.hpctl("pools")["models"][0]["slo_s"] == 0.25


@test
def a_full_disk_refuses_changes_and_ends_no_stream():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        whole = c.answer("demo", PROMPT["messages"], ignore_eos=True, max_tokens=400)
        stream = c.stream("/v1/chat/completions", PROMPT)
        events = stream.events()
        got = text_of(next(events)) + text_of(next(events))
        pid = pid_of(c)
        room(pid, False)
        refused(c, "node", "token", "create")
        refused(c, "deploy", DEMO, "--name", "second")
        refused(c, "undeploy", "demo")
        got += "".join(text_of(e) for e in events)
        assert got == whole, got[-80:]
        assert c.answer("demo", PROMPT["messages"], ignore_eos=True, max_tokens=400) == whole
        assert pid_of(c) == pid
        room(pid, True)
        c.wait("changes are taken again", lambda: c.hpctl("node", "token", "create"), 10)


@test
def a_coordinator_starts_with_a_full_disk_and_serves():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        whole = c.answer("demo", PROMPT["messages"], ignore_eos=True, max_tokens=40)
        process = start_again(c, full=True)
        try:
            c.wait("it serves again", lambda: c.chat("demo", PROMPT["messages"], ignore_eos=True, max_tokens=8)[0] == 200, 20)
            assert c.answer("demo", PROMPT["messages"], ignore_eos=True, max_tokens=40) == whole
            refused(c, "node", "token", "create")
            room(process.pid, True)
            c.wait("changes are taken again", lambda: c.hpctl("node", "token", "create"), 10 * SCALE)
        finally:
            process.kill()
            process.wait()


@test
def each_start_has_a_higher_number_though_the_disk_was_full():
    """Agents refuse requests whose numbers are below those that they have had."""
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        process = None
        for room_bytes in (0, 0, 0, resource.RLIM_INFINITY):
            if process:
                process.kill()
                process.wait()
                process = started(c, process.args, room_bytes)
            else:
                process = start_again(c, full=True)
            c.wait("it serves again", lambda: c.chat("demo", PROMPT["messages"], max_tokens=2)[0] == 200, 20)
        process.kill()
        process.wait()
        with open(os.path.join(c.folder, "state", "agents", "a0", "log")) as f:
            boots = [int(number) for number in re.findall(r"joined name=a0 boot=(\d+)", f.read())]
        assert len(boots) == 5 and boots == sorted(set(boots)), boots


@test
def where_a_full_disk_kept_new_places_from_being_stored_the_next_run_serves():
    with Cluster(agents=3, cores=1) as c:
        c.deploy("demo", DEMO, "--compute", "f32", "--copies", "2")
        whole = c.answer("demo", PROMPT["messages"], ignore_eos=True, max_tokens=40)
        c.wait("copies are made", lambda: all(s.get("copy_on") for s in c.hpctl("describe", "demo")["stages"]))
        room(pid_of(c), False)
        for generation in (2, 3):
            who = c.hpctl("describe", "demo")["stages"][0]["agent"]
            c.kill(who)
            c.wait("another place serves", lambda: (lambda d: d["state"] == "serving" and d["generation"] >= generation)(c.hpctl("describe", "demo")), 30)
            c.hpctl("local", "start", "--agent", who)
            c.wait("it is back", lambda: c.member(who) == "ready")
        generation = c.hpctl("describe", "demo")["generation"]
        c.kill("coordinator")
        c.hpctl("local", "start", "--coordinator")
        c.wait_serving("demo", 30)
        assert c.hpctl("describe", "demo")["generation"] > generation
        assert c.answer("demo", PROMPT["messages"], ignore_eos=True, max_tokens=40) == whole


@test
def an_agents_full_disk_fails_what_it_cannot_keep_by_name_and_nothing_else():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        whole = c.answer("demo", PROMPT["messages"], ignore_eos=True, max_tokens=40)
        pid = c.agent("a1")["pid"]
        other = c.weights_of_its_own(1)
        room(pid, False)
        try:
            c.hpctl("deploy", other, "--name", "other", "--agents", "a0,a1", "--upload", timeout=60)
            raise AssertionError("weights were taken with a full disk")
        except Failed as e:
            assert "a1" in e.message and ("space" in e.message or "large" in e.message), e
        assert c.answer("demo", PROMPT["messages"], ignore_eos=True, max_tokens=40) == whole
        assert c.agent("a1")["pid"] == pid and c.agent("a1")["state"] != "dead"
        room(pid, True)
        c.take_away("other")
        c.deploy("other", other, "--agents", "a0,a1", "--upload")
        assert c.answer("other", "Hello!", max_tokens=5) is not None


@test
def an_agent_starts_with_a_full_disk_and_serves_what_it_has():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO, "--compute", "f32")
        whole = c.answer("demo", PROMPT["messages"], ignore_eos=True, max_tokens=40)
        pid = c.agent("a0")["pid"]
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            command = [word.decode() for word in f.read().split(b"\0")[:-1]]
        os.kill(pid, signal.SIGKILL)
        process = limited(c, command, 0, stderr=subprocess.DEVNULL)
        try:
            c.wait("it serves again", lambda: c.chat("demo", PROMPT["messages"], ignore_eos=True, max_tokens=8)[0] == 200, 30)
            assert c.answer("demo", PROMPT["messages"], ignore_eos=True, max_tokens=40) == whole
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()


main()
