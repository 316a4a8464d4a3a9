"""Agents of several devices: one agent holds several stages of a deployment, and of several, and hands over within itself."""
import contextlib
import json
import os
import signal
import subprocess
import time

import numpy

from cluster import BUILD, SCALE, Cluster, DEMO, Failed
from tap import main, test

STORY = {"messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0, "ignore_eos": True, "max_tokens": 400}
CORES = sorted(os.sched_getaffinity(0))[:2]
HALVES = [part for core in CORES for part in ("--device", f"cpu:{core}")]


def start_agent(c, name, *args):
    folder = os.path.join(c.folder, "extra", name)
    os.makedirs(folder, exist_ok=True)
    token, control = c.hpctl("node", "token", "create")["token"], c.hpctl("context", "ls")[0]["control"]
    return subprocess.Popen([os.path.join(BUILD, "hp-agent"), "--join", control, "--token", token, "--name", name, "--dir", folder, "--network", "lo", "--memory", "1GiB", *args],
                            stdout=subprocess.DEVNULL, stderr=open(os.path.join(folder, "log"), "w"))


@contextlib.contextmanager
def pair_beside(**options):
    """A cluster, and an agent `pair` of two devices, each a core: two halves of a box."""
    assert len(CORES) == 2, "these tests need two cores"
    with Cluster(**options) as c:
        agent = start_agent(c, "pair", *HALVES)
        try:
            c.wait("the agent of two devices is ready", lambda: c.member("pair") == "ready")
            yield c, agent
        finally:
            agent.kill()
            agent.wait()


def logits(c, name, ids):
    file = os.path.join(c.folder, name + ".npy")
    done = c.run("model", "logits", "--deployment", name, "--ids", ids, "-o", file)
    assert done.returncode == 0, done.stderr
    return numpy.load(file)


def where(deployment):
    return [s["on"] for s in deployment["stages"]]


def node(c, name):
    return c.hpctl("node", "describe", name)


@test
def devices_of_one_agent_give_the_tokens_of_two_agents_to_the_bit():
    with pair_beside(agents=2, cores=1) as (c, _):
        ids = c.hpctl("model", "tokenize", DEMO, "--text", "The red box holds a spoon. The blue box holds a kite. " * 9)["ids"][:150]
        text = ",".join(map(str, ids))
        cut = ("--compute", "f32", "--slice", "16")
        two = c.deploy("agents", DEMO, "--agents", "a0,a1", *cut)
        layers = ",".join(f"{s['first_layer']}-{s['last_layer']}:pair/cpu{i}" for i, s in enumerate(two["stages"]))
        assert where(c.deploy("devices", DEMO, "--layers", layers, *cut)) == ["pair/cpu0", "pair/cpu1"]
        # Three devices over two agents, there and back again.
        assert where(c.deploy("over", DEMO, "--agents", "pair/cpu1,a0,pair/cpu0", *cut)) == ["pair/cpu1", "a0", "pair/cpu0"]
        expected = c.hpctl("model", "greedy", DEMO, "--ids", text, "--tokens", "24", "--compute", "f32")["ids"]
        for name in ("agents", "devices", "over"):
            got = c.hpctl("model", "greedy", "--deployment", name, "--ids", text, "--tokens", "24")["ids"]
            assert got == expected, f"{name}: {got} {expected}"
        assert (logits(c, "agents", text) == logits(c, "devices", text)).all()


@test
def what_the_agent_hands_to_itself_goes_over_no_socket():
    with pair_beside(agents=1, cores=1) as (c, agent):
        c.deploy("demo", DEMO, "--agents", "pair")
        before = node(c, "pair")["data_sent_bytes"]
        assert c.answer("demo", "What is in the box?")
        c.wait("frames were handed over", lambda: node(c, "pair")["data_sent_bytes"] > before)
        lines = subprocess.run(["ss", "-tnpH"], capture_output=True, text=True).stdout.splitlines()
        own = [line.split() for line in lines if f"pid={agent.pid}," in line]
        here = {line[3] for line in own}
        assert own and not [line for line in own if line[4] in here], own


@test
def two_deployments_share_the_devices_of_an_agent():
    with pair_beside(agents=1, cores=1) as (c, _):
        for name, agents in (("one", "pair"), ("other", "pair/cpu1,pair/cpu0")):
            c.deploy(name, DEMO, "--agents", agents, "--compute", "f32")
        alone = {name: c.answer(name, STORY["messages"], ignore_eos=True, max_tokens=60) for name in ("one", "other")}
        assert alone["one"] == alone["other"]
        streams = [c.stream("/v1/chat/completions", dict(STORY, model=name, max_tokens=60)) for name in ("one", "other") * 3]
        for s in streams:
            text = "".join(e["choices"][0]["delta"].get("content", "") for e in s.events() if e and e.get("choices"))
            assert text == alone["one"], text
            s.close()
        c.wait("both devices of the first tell their time",
               lambda: {s["on"] for s in c.hpctl("describe", "one")["stages"] if s.get("busy_s")} == {"pair/cpu0", "pair/cpu1"})

        def placed():
            return sorted((s["deployment"], s["stage"], s["device"]) for s in node(c, "pair")["stages"])

        c.wait("each stage has the device that it asked for", lambda: placed() == [
            ("one", 0, "cpu0"), ("one", 1, "cpu1"), ("other", 0, "cpu1"), ("other", 1, "cpu0")])
        c.hpctl("undeploy", "one")
        assert c.answer("other", STORY["messages"], ignore_eos=True, max_tokens=60) == alone["other"]
        c.wait("the stages of the first are gone", lambda: {s["deployment"] for s in node(c, "pair")["stages"]} == {"other"})


@test
def killed_mid_stream_it_comes_back_and_the_stream_goes_on():
    with pair_beside(agents=1, cores=1) as (c, agent):
        c.deploy("demo", DEMO, "--layers", "0-5:pair/cpu0,6-11:a0,12-17:pair/cpu1", "--compute", "f32")
        whole = c.answer("demo", STORY["messages"], ignore_eos=True, max_tokens=400)
        for turn in range(3):
            stream = c.stream("/v1/chat/completions", dict(STORY, model="demo"))
            events = stream.events()
            got = "".join(next(events)["choices"][0]["delta"].get("content", "") for _ in range(3 + 9 * turn))
            os.kill(agent.pid, signal.SIGKILL)
            agent.wait()
            again = start_agent(c, "pair", *HALVES)
            agent.pid, agent.wait, agent.kill = again.pid, again.wait, again.kill
            rest = list(events)
            assert rest[-1] is None, "the stream broke off without an end"
            assert not any(e and "error" in e for e in rest), rest[-2]
            got += "".join(e["choices"][0]["delta"].get("content", "") for e in rest if e and e.get("choices"))
            assert got == whole, got[-60:]
            stream.close()
            c.wait("it serves again", lambda: c.chat("demo", STORY["messages"], ignore_eos=True, max_tokens=8)[0] == 200, 30)
            assert whole.startswith(c.answer("demo", STORY["messages"], ignore_eos=True, max_tokens=8))
            assert where(c.hpctl("describe", "demo")) == ["pair/cpu0", "a0", "pair/cpu1"]


@test
def everybody_knows_the_devices():
    with Cluster(agents=1, cores=2, devices=2, memory="1GiB") as c:
        kinds = {d["kind"] for d in node(c, "a0")["devices"]}
        assert len(kinds) == 1, kinds  # equal halves share a profile
        deployed = c.deploy("demo", DEMO, "--agents", "a0")
        assert where(deployed) == ["a0/cpu0", "a0/cpu1"]
        assert [p["kind"] for p in c.hpctl("profile", "ls")] == list(kinds)
        stages = lambda n: [(s["stage"], s["device"]) for s in n["stages"]]
        loaded = lambda n: n if all(d["memory_free_bytes"] < d["memory_bytes"] for d in n["devices"]) and stages(n) == [(0, "cpu0"), (1, "cpu1")] else None
        told = c.wait("what is free is told, and which stages are held", lambda: loaded(node(c, "a0")))
        devices = told["devices"]
        assert [d["id"] for d in devices] == ["a0/cpu0", "a0/cpu1"], devices
        assert [d["cores"] for d in devices] == [[core] for core in CORES] and [d["threads"] for d in devices] == [1, 1], devices
        assert devices[0]["memory_bytes"] == devices[1]["memory_bytes"] and sum(d["memory_bytes"] for d in devices) == told["memory_bytes"] < 1 << 30
        assert all(0 < d["memory_free_bytes"] < d["memory_bytes"] for d in devices), devices
        nodes = c.hpctl("topo")["nodes"]
        assert [d["name"] for d in nodes[0]["devices"]] == ["cpu0", "cpu1"] and nodes[0]["device_link"]["bandwidth_bytes_per_s"] > 1e9
        assert c.hpctl("ps")[0]["stages"][1]["device"] == "cpu1"
        assert "a0/cpu0,a0/cpu1" in c.run("ps").stdout and "2 x " in c.run("node", "ls").stdout
        status, metrics = c.request("GET", "/metrics")
        assert status == 200 and 'hp_device_memory_bytes{agent="a0",device="cpu1"}' in metrics
        assert 'hp_stage_batches_total{deployment="demo",stage="1",agent="a0",device="cpu1"}' in metrics
        # The planner takes them like those of any cluster: from a file of what topo tells too.
        file = os.path.join(c.folder, "cluster.json")
        with open(file, "w") as f:
            json.dump(c.hpctl("topo"), f)
        threads = os.listdir(f"/proc/{c.agent('a0')['pid']}/task")
        pinned = set()
        for thread in threads:
            with open(f"/proc/{c.agent('a0')['pid']}/task/{thread}/status") as f:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
            if status["Name"] == "hp-executor":
                pinned.add(status["Cpus_allowed_list"])
        assert pinned == {str(core) for core in CORES}, pinned


@test
def a_device_that_cannot_be_is_refused_by_name():
    with Cluster(agents=1, cores=1) as c:
        first, second = CORES
        for args, words in (
                (("--device", f"cpu:{first}", "--device", f"cpu:{first}"), f"core {first} is of --device cpu:{first} already"),
                (("--device", "cpu", "--device", "cpu"), "two devices without cores"),
                (("--device", f"cpu:{first},mem=2GiB", "--device", "cpu"), "the devices ask for more"),
                (("--device", f"cpu:{first}", "--cores", str(second)), f"core {first} is not one that this agent may use"),
                (("--device", f"cpu:{first}", "--threads", "1"), "say threads=1 with the device")):
            agent = start_agent(c, "x", *args)
            assert agent.wait(20) == 2, args
            with open(os.path.join(c.folder, "extra", "x", "log")) as f:
                said = f.read()
            assert words in said, (args, said)
        for agents, code in (("a0/cpu1", "not_found"), ("a0,a0/cpu", "invalid")):
            try:
                c.deploy("demo", DEMO, "--agents", agents)
                raise AssertionError(f"--agents {agents} was taken")
            except Failed as e:
                assert e.code == code, (agents, e.code, e.message)


main()
