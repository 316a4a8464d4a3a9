"""Rows of prompts between the memory of GPUs and the wire, without the host's: real agents, the stand-in for CUDA (tests/cuda_on_cpu), and a UCX that knows its memory (tests/attack/shims/gpu_direct.c). No GPU and no UCX
with CUDA has run this; what these tests hold is all that is known of it."""
import contextlib
import json
import os
import threading

from cluster import BUILD, Cluster, ROOT
from gpu_agents import said, start_agent
from tap import main, skip, test

SHIM = os.path.join(BUILD, "tests", "attack", "shims", "gpu_direct.so")
GOLDEN = os.path.join(os.environ.get("HP_GOLDEN", os.path.join(ROOT, "..", "shared", "golden")), "quantised")
MODEL = os.path.join(GOLDEN, "model-f32.gguf")
SLICE, SLICES, ROW_BYTES, TOKENS = 68, 2, 1024, 3  # a slice's rows are more than what never waits, 64 KiB
ROWS = SLICE * ROW_BYTES


def prompt():
    if not os.path.exists(MODEL):
        skip("../shared/golden is not here")
    with open(os.path.join(GOLDEN, "expected.json")) as f:
        ids = max((p["ids"] for p in json.load(f)["prompts"]), key=len)
    return (ids * SLICE)[:SLICES * SLICE]


def joined(ids):
    return ",".join(map(str, ids))


class Direct:
    """An agent with a GPU whose UCX knows that."""

    def __init__(self, c, name, *args, shim=True, **env):
        self.c, self.name = c, name
        self.notes_file, self.stop_file, self.lost_file = (os.path.join(c.folder, name + "." + what) for what in ("notes", "stop", "lost"))
        env = {"CUDA_ON_CPU": "lost_file=" + self.lost_file, **env}
        if shim:
            env = {"LD_PRELOAD": SHIM, "HP_DIRECT_NOTES": self.notes_file, "HP_DIRECT_STOP": self.stop_file, **env}
        self.process = start_agent(c, name, "--device", "cuda:0,mem=64MiB", *args, **env)
        c.wait(f"{name} is ready", lambda: c.member(name) == "ready")

    def end(self):
        self.process.kill()
        self.process.wait()

    def notes(self, what):
        """Of each: large copies to the device and to the host by then."""
        if not os.path.exists(self.notes_file):
            return []
        with open(self.notes_file) as f:
            lines = [line.split() for line in f]
        return [(int(to_device), int(to_host)) for word, size, to_device, to_host in lines if word == what and int(size) == ROWS]

    def says(self):
        return next(k for k in self.c.hpctl("node", "describe", self.name)["node"]["kernels"] if k["what"] == "rows of large frames")

    def free_bytes(self):
        return self.c.hpctl("node", "describe", self.name)["devices"][0]["memory_free_bytes"]

    def clear(self):
        if os.path.exists(self.notes_file):
            os.unlink(self.notes_file)


@contextlib.contextmanager
def gpus(*how):
    with Cluster(agents=1, cores=1) as c:
        agents = []
        try:
            for i, (args, options) in enumerate(how):
                agents.append(Direct(c, f"g{i}", *args, **options))
            yield c, *agents
        finally:
            for agent in agents:
                agent.end()


def deploy(c, *stages):
    """Of each its layers and its device. A GPU has few of the six: one prompt's work on the stand-in takes seconds, and nothing else is done with it meanwhile."""
    d = c.deploy("m", MODEL, "--compute", "f32", "--layers", ",".join(stages), "--slice", str(SLICE), "--max-context", "512", "--max-sequences", "2", "--prefix-cache", "off")
    assert [s["on"] for s in d["stages"]] == [s.split(":")[1] for s in stages], d["stages"]


GPU_GPU_CPU, CPU_GPU = ("0-0:g0", "1-1:g1", "2-5:a0"), ("0-4:a0", "5-5:g1")


def greedy(c, ids):
    return c.hpctl("model", "greedy", "--deployment", "m", "--ids", joined(ids), "--tokens", str(TOKENS), "--slice", str(SLICE))["ids"]


def wanted(c, ids):
    return c.hpctl("model", "greedy", MODEL, "--ids", joined(ids), "--tokens", str(TOKENS), "--compute", "f32")["ids"]


def staged(notes, way):
    """Large copies by the host between the first of these frames and the last."""
    return notes[-1][way] - notes[0][way]


TO_DEVICE, TO_HOST = 0, 1


@test
def prompts_say_the_same_tokens_over_gpus_and_cpus_and_no_row_is_copied_by_the_host():
    ids = prompt()
    with gpus(((), {}), ((), {})) as (c, g0, g1):
        want = wanted(c, ids)
        assert g0.says() == {"what": "rows of large frames", "how": "GPU-direct", "why": "UCX lists CUDA memory"}, g0.says()
        for stages, gpus_of in ((GPU_GPU_CPU, (g0, g1)), (CPU_GPU, (g1,))):
            deploy(c, *stages)
            g0.clear(), g1.clear()
            assert greedy(c, ids) == want and greedy(c, ids) == want, stages
            for i, agent in enumerate(gpus_of):
                sent, came, last, first = agent.notes("sent"), agent.notes("came"), stages == CPU_GPU, stages != CPU_GPU and i == 0
                assert (len(sent) >= 2 * SLICES) != last and (len(came) >= 2 * SLICES) != first and len(came) == len(agent.notes("posted")), (stages, agent.name, sent, came)
                assert last or staged(sent, TO_HOST) == 0, (stages, agent.name, sent)
                assert first or staged(came, TO_DEVICE) == 0, (stages, agent.name, came)
                assert not any(agent.notes(what) for what in ("failed", "host_sent", "host_posted")), (stages, agent.name)
            c.run("undeploy", "m")
        for agent, loads in ((g0, 1), (g1, 2)):
            assert said(c, agent.name).count("stage_direct") == loads and "device_memory" not in said(c, agent.name), said(c, agent.name)


@test
def switched_off_or_without_a_ucx_that_can_rows_go_by_pinned_memory_as_before():
    ids = prompt()
    with gpus((("--gpu-direct", "off"), {}), ((), {"shim": False})) as (c, off, plain):
        assert (off.says()["how"], off.says()["why"]) == ("by pinned host memory", "--gpu-direct off"), off.says()
        assert (plain.says()["how"], plain.says()["why"]) == ("by pinned host memory", "UCX lists no CUDA memory"), plain.says()
        deploy(c, *GPU_GPU_CPU)
        assert greedy(c, ids) == greedy(c, ids) == wanted(c, ids)
        sent = off.notes("host_sent")
        assert len(sent) >= 2 * SLICES and staged(sent, TO_HOST) >= SLICES and not off.notes("sent"), sent
        assert "stage_direct" not in said(c, "g0") + said(c, "g1")


def begun(c, ids, sender, receiver):
    """A request of which the first rows are on their way: announced by a sender whose data channel stands still from then on, and awaited in the receiver's memory."""
    open(sender.stop_file, "w").close()
    receiver.clear()
    asked = threading.Thread(target=lambda: c.request("POST", "/v1/completions", {"model": "m", "prompt": ids, "max_tokens": TOKENS, "temperature": 0}))
    asked.start()
    c.wait("rows are awaited in the GPU's memory", lambda: receiver.notes("posted"))
    assert not receiver.notes("came") and not receiver.notes("failed")
    return asked


@test
def memory_of_a_gpu_stays_as_long_as_the_transport_may_write_to_it():
    ids = prompt()
    with gpus(((), {}), ((), {})) as (c, g0, g1):
        before = g1.free_bytes()
        deploy(c, *GPU_GPU_CPU)
        c.wait("its memory is counted", lambda: g1.free_bytes() < before)  # beats bring it
        loaded = g1.free_bytes()
        asked = begun(c, ids, g0, g1)
        c.run("undeploy", "m")
        c.wait("all but what is awaited is free", lambda: g1.free_bytes() > loaded)
        free = g1.free_bytes()
        assert free < before or g1.notes("failed"), (free, before)
        g0.end()
        c.wait("the rows will not come", lambda: g1.notes("failed"))  # and are written once more: the stand-in ends an agent whose memory is gone
        c.wait("all memory is free", lambda: g1.free_bytes() == before)
        asked.join()
        assert g1.process.poll() is None, said(c, "g1")
        deploy(c, *CPU_GPU)
        assert greedy(c, ids) == wanted(c, ids)


@test
def a_gpu_that_is_lost_while_rows_come_leaves_its_agent():
    ids = prompt()
    with gpus(((), {}), (("--device", "cpu"), {})) as (c, g0, g1):
        deploy(c, "0-0:g0", "1-1:g1/cuda0", "2-5:a0")
        asked = begun(c, ids, g0, g1)
        open(g1.lost_file, "w").close()
        g0.end()
        c.wait("the rows will not come", lambda: g1.notes("failed"))
        c.run("undeploy", "m")
        asked.join()
        assert g1.process.poll() is None and c.member("g1") == "ready", said(c, "g1")
        deploy(c, "0-2:a0", "3-5:g1/cpu")
        assert greedy(c, ids) == wanted(c, ids)


@test
def a_gpu_that_takes_no_rows_any_more_is_told_as_lost():
    ids = prompt()
    with gpus(((), {}), ((), {})) as (c, g0, g1):
        deploy(c, *GPU_GPU_CPU)
        open(g1.lost_file, "w").close()
        asked = threading.Thread(target=lambda: c.request("POST", "/v1/completions", {"model": "m", "prompt": ids, "max_tokens": TOKENS, "temperature": 0}))
        asked.start()
        c.wait("rows do not come into its memory", lambda: g1.notes("failed"))
        c.wait("it is lost", lambda: "illegal memory access" in c.hpctl("node", "describe", "g1")["devices"][0].get("lost", ""))
        assert "device_not_reached" in said(c, "g1"), said(c, "g1")
        c.run("undeploy", "m")
        asked.join()
        assert g0.process.poll() is None and g1.process.poll() is None, said(c, "g1")


main()
