"""The cuda backend through real agents, as the stand-in for CUDA runs it (tests/cuda_on_cpu): alone, beside CPUs, and with what goes wrong."""
import json
import os
import re
import tempfile

from cluster import Cluster, DEMO, Failed, ROOT
from gpu_agents import STANDIN, gpu_beside, said, start_agent
from tap import main, skip, test

GOLDEN = os.path.join(os.environ.get("HP_GOLDEN", os.path.join(ROOT, "..", "shared", "golden")), "llama2")


@test
def a_golden_model_over_gpu_and_cpu_stages_says_its_tokens():
    if not os.path.exists(GOLDEN):
        skip("../shared/golden is not here")
    with open(os.path.join(GOLDEN, "expected.json")) as f:
        prompts = json.load(f)["prompts"]
    with gpu_beside("--device", "cuda:0,mem=64MiB", "--device", "cpu") as (c, _):
        devices = {d["name"]: d for d in c.hpctl("node", "describe", "gpu")["devices"]}
        assert sorted(devices) == ["cpu", "cuda0"], devices
        assert devices["cuda0"]["memory_bytes"] == 64 << 20 and devices["cuda0"]["kind"] == "CUDA-stand-in", devices
        d = c.deploy("golden", os.path.join(GOLDEN, "model-f32.gguf"), "--compute", "f32", "--layers", "0-1:gpu/cuda0,2-4:a0,5-7:gpu/cpu", "--max-context", "256", "--max-sequences", "4")
        assert [s["on"] for s in d["stages"]] == ["gpu/cuda0", "a0", "gpu/cpu"], d["stages"]
        for p in prompts[:2]:
            got = c.hpctl("model", "greedy", "--deployment", "golden", "--ids", ",".join(map(str, p["ids"])), "--tokens", "12")["ids"]
            assert got == p["greedy_ids"][:12], (p["text"], got)
        asked = {"model": "golden", "prompt": [p["ids"] for p in prompts[:2]], "max_tokens": 12, "temperature": 0}
        status, body = c.request("POST", "/v1/completions", asked)
        assert status == 200, body
        for p, choice in zip(prompts, body["choices"]):
            text = c.request("POST", "/detokenize", {"model": "golden", "tokens": p["greedy_ids"][:12]})[1]["content"]
            assert choice["text"] and choice["text"].strip() == text.strip(), (choice, text)


@test
def shares_of_a_gpu_are_devices_that_run_a_model_together():
    if not os.path.exists(GOLDEN):
        skip("../shared/golden is not here")
    with open(os.path.join(GOLDEN, "expected.json")) as f:
        prompt = json.load(f)["prompts"][0]
    with gpu_beside("--device", "cuda:0/share=1/2,mem=64MiB,host=16MiB", "--device", "cuda:0/share=1/4", CUDA_ON_CPU="sms=16") as (c, _):
        devices = {d["name"]: d for d in c.hpctl("node", "describe", "gpu")["devices"]}
        assert sorted(devices) == ["cuda0-0", "cuda0-1"], devices
        half, quarter = devices["cuda0-0"], devices["cuda0-1"]
        assert half["kind"] == "CUDA-stand-in-1of2" and half["share"] == "1/2" and half["multiprocessors"] == 8 and half["all_multiprocessors"] == 16, half
        assert quarter["kind"] == "CUDA-stand-in-1of4" and quarter["share"] == "1/4" and quarter["multiprocessors"] == 4 and quarter["kept_by"] == "green context", quarter
        assert half["memory_bytes"] == 64 << 20 and quarter["memory_bytes"] == (1 << 30) // 10 * 9 // 4, devices
        shown = c.run("node", "describe", "gpu").stdout
        assert "4 of 16 SMs" in shown and "in the host's memory" in shown, shown
        assert half["host_bytes"] == 16 << 20 and "host_bytes" not in quarter, devices
        assert "cuda:0/share=1/4 CUDA stand-in, compute capability 8.0, 4 of 16 multiprocessors" in said(c, "gpu")
        d = c.deploy("golden", os.path.join(GOLDEN, "model-f32.gguf"), "--compute", "f32", "--layers", "0-3:gpu/cuda0-0,4-7:gpu/cuda0-1", "--max-context", "256", "--max-sequences", "4")
        assert [s["on"] for s in d["stages"]] == ["gpu/cuda0-0", "gpu/cuda0-1"], d["stages"]
        got = c.hpctl("model", "greedy", "--deployment", "golden", "--ids", ",".join(map(str, prompt["ids"])), "--tokens", "12")["ids"]
        assert got == prompt["greedy_ids"][:12], got


@test
def stages_that_serve_while_they_are_loaded_say_the_same_tokens():
    if not os.path.exists(GOLDEN):
        skip("../shared/golden is not here")
    with open(os.path.join(GOLDEN, "expected.json")) as f:
        prompts = json.load(f)["prompts"]
    with gpu_beside("--device", "cuda:0,mem=64MiB", "--device", "cpu", "--serve-while-loading") as (c, _):
        def free_bytes():
            return [d["memory_free_bytes"] for d in c.hpctl("node", "describe", "gpu")["devices"]]
        before = free_bytes()
        for _ in range(2): # again, over weights that went with the first
            d = c.deploy("golden", os.path.join(GOLDEN, "model-f32.gguf"), "--compute", "f32", "--layers", "0-3:gpu/cuda0,4-7:gpu/cpu", "--max-context", "256", "--max-sequences", "4")
            assert [s["on"] for s in d["stages"]] == ["gpu/cuda0", "gpu/cpu"], d["stages"]
            for p in prompts[:2]:
                got = c.hpctl("model", "greedy", "--deployment", "golden", "--ids", ",".join(map(str, p["ids"])), "--tokens", "12")["ids"]
                assert got == p["greedy_ids"][:12], (p["text"], got)
            c.wait("its memory is counted", lambda: free_bytes()[0] < before[0])  # beats bring it
            c.run("undeploy", "golden")
            c.wait("the memory is free again", lambda: free_bytes()[0] == before[0])
        assert said(c, "gpu").count("stage_filled") == 4 and "stage_fill_failed" not in said(c, "gpu"), said(c, "gpu")


@test
def without_green_contexts_mps_keeps_an_agent_to_its_share():
    with tempfile.TemporaryDirectory() as folder, Cluster(agents=1, cores=1) as c:
        box = {"CUDA_ON_CPU": "sms=16,green=0", "CUDA_MPS_PIPE_DIRECTORY": folder}
        share = ("--device", "cuda:0/share=1/4,mem=64MiB")
        for devices, words in ((share, f"no MPS daemon listens at {folder}/control"), (share + share, "MPS keeps a whole agent to one share"), (share + ("--device", "cuda:1"), "MPS keeps this whole agent to its share of cuda:0")):
            agent = start_agent(c, "x", *devices, **{**box, "CUDA_ON_CPU": "sms=16,green=0,devices=2"})
            assert agent.wait(20) != 0, devices
            assert words in said(c, "x"), (devices, said(c, "x"))
            open(os.path.join(folder, "control"), "w").close()
        agent = start_agent(c, "gpu", *share, **box)
        try:
            c.wait("the agent with a share is ready", lambda: c.member("gpu") == "ready")
            device = c.hpctl("node", "describe", "gpu")["devices"][0]
            assert device["share"] == "1/4" and device["multiprocessors"] == 4 and device["kept_by"] == "MPS", device
        finally:
            agent.kill()
            agent.wait()


@test
def a_box_without_driver_plugin_or_memory_is_told_so():
    with Cluster(agents=1, cores=1) as c:
        for device, env, words in (
                ("cuda:0", {"CUDA_ON_CPU": "driver=0"}, "this box has no NVIDIA driver"),
                ("cuda:3", {}, "there is no device cuda:3: this box has 1 GPUs"),
                ("cuda:0", {"HP_CUDA_PLUGIN": "/nowhere/libhp-cuda.so"}, "the cuda backend cannot be loaded"),
                ("cuda:0,mem=2GiB", {}, "1073741824 are missing"),
                ("cuda:0/share=1/4", {"CUDA_ON_CPU": "sms=15"}, "cut into 4 parts, its 15 multiprocessors are too few"),
                ("cuda:0,threads=2", {}, "is not of a GPU")):
            agent = start_agent(c, "x", "--device", device, **env)
            assert agent.wait(20) != 0, device
            assert words in said(c, "x"), (device, said(c, "x"))


@test
def a_gpu_that_is_too_small_is_refused_beforehand_and_what_it_is_said_to_miss_is_enough():
    model = os.path.join(GOLDEN, "..", "quantised", "model-q4_k_m.gguf")
    if not os.path.exists(model):
        skip("../shared/golden is not here")
    asked = ("--slice", "68", "--max-context", "512", "--max-sequences", "2", "--prefix-cache", "off")
    small = 8500  # KiB: the scratch of its kernels alone has 8192
    with Cluster(agents=1, cores=1) as c:
        agents = []
        try:
            agents.append(start_agent(c, "small", "--device", f"cuda:0,mem={small}KiB"))
            c.wait("the small one is ready", lambda: c.member("small") == "ready")
            try:
                c.deploy("m", model, "--layers", "0-5:small", *asked)
                raise AssertionError("it has too little memory")
            except Failed as e:
                assert e.code == "infeasible", e
                missing = int(re.search(r"(\d+) bytes are missing there", e.message).group(1))
            assert "stage_prepare" not in said(c, "small"), said(c, "small")
            agents.append(start_agent(c, "enough", "--device", f"cuda:0,mem={small + -(-missing // 1024)}KiB"))
            c.wait("the other is ready", lambda: c.member("enough") == "ready")
            c.deploy("m", model, "--layers", "0-5:enough", *asked)
            for tokens in (5, 70):  # the second wants more scratch than the first
                status, body = c.request("POST", "/v1/completions", {"model": "m", "prompt": list(range(3, 3 + tokens)), "max_tokens": 3, "temperature": 0})
                assert status == 200, (tokens, body)
        finally:
            for agent in agents:
                agent.kill()
                agent.wait()


@test
def a_plugin_that_was_built_of_other_headers_is_refused_in_words():
    with Cluster(agents=1, cores=1) as c:
        plugin = os.path.join(c.folder, "libhp-cuda.so")
        with open(STANDIN, "rb") as f:
            built, mark = f.read(), b"hp-backend-interface "
        at = built.index(mark) + len(mark)
        with open(plugin, "wb") as f: # as after a change of backend.h
            f.write(built[:at] + bytes([built[at] ^ 1]) + built[at + 1:])
        agent = start_agent(c, "x", "--device", "cuda:0", HP_CUDA_PLUGIN=plugin)
        assert agent.wait(20) != 0
        assert "libhp-cuda.so was built of other headers than hp-agent" in said(c, "x") and "make all cuda" in said(c, "x"), said(c, "x")


@test
def a_gpu_that_is_lost_leaves_the_agent_and_its_other_devices():
    with gpu_beside("--device", "cuda:0,mem=64MiB", "--device", "cpu", CUDA_ON_CPU="call_fails=300") as (c, agent):
        for said_then in ("illegal memory access", "is lost"):
            try:
                c.deploy("demo", DEMO, "--agents", "gpu/cuda0")
                raise AssertionError("a GPU that is lost runs a model")
            except Failed as e:
                assert "cuda0" in e.message.replace(":", "") and said_then in e.message, e.message
        assert agent.poll() is None, agent.poll()
        devices = {d["name"]: d for d in c.hpctl("node", "describe", "gpu")["devices"]}
        assert "illegal memory access" in devices["cuda0"]["lost"] and "lost" not in devices["cpu"], devices
        c.deploy("other", DEMO, "--agents", "gpu/cpu")
        assert c.answer("other", "What is in the box?")


@test
def an_answer_goes_on_elsewhere_when_its_gpu_is_lost():
    if not os.path.exists(GOLDEN):
        skip("../shared/golden is not here")
    with open(os.path.join(GOLDEN, "expected.json")) as f:
        prompt = json.load(f)["prompts"][1]
    with tempfile.TemporaryDirectory() as folder:
        lost = os.path.join(folder, "lost")
        with gpu_beside("--device", "cuda:0,mem=64MiB", CUDA_ON_CPU="lost_file=" + lost) as (c, agent):
            c.hpctl("node", "drain", "a0")
            c.deploy("golden", os.path.join(GOLDEN, "model-f32.gguf"), "--compute", "f32", "--max-context", "256", "--max-sequences", "4")
            c.hpctl("node", "undrain", "a0")
            stream = c.stream("/v1/completions", {"model": "golden", "prompt": prompt["ids"], "max_tokens": 24, "temperature": 0})
            text = ""
            for event in stream.events():
                text += event["choices"][0]["text"] if event and event.get("choices") else ""
                if text and not os.path.exists(lost):
                    open(lost, "w").close()
            want = c.request("POST", "/detokenize", {"model": "golden", "tokens": prompt["greedy_ids"][:24]})[1]["content"]
            d = c.hpctl("describe", "golden")
            assert text.strip() == want.strip(), (text, want)
            assert d["losses"]["places"] == 1 and "illegal memory access" in d["losses"]["last_why"], d["losses"]
            assert [s["on"] for s in d["stages"]] == ["a0"], d["stages"]
            assert agent.poll() is None and c.member("gpu") == "ready"


main()
