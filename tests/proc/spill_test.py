"""KV cache that was given up and is kept in memory and on disk, on real agents: read back, found again after a restart, never believed when it was changed, and never another token."""
import os
import signal
import struct
import tempfile
import threading

from cluster import Cluster, DEMO, ROOT
from tap import main, skip, test

WINDOWED = os.path.join(os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared")), "golden-families", "gemma3", "model-f32.gguf")
STORY = "Once upon a time there was a little cluster that learned to answer. " * 4
# Prompts so long that computing them takes longer than copying, however fast the machine is.
OPTIONS = ("--compute", "f32", "--max-sequences", "2", "--max-context", "2048")
TOKENS, PAGES = 1950, 30


def with_longer_context(path, out, tokens):
    """The same model, but for how many tokens it says that it takes."""
    with open(path, "rb") as f:
        data = f.read()
    key = b"gemma3.context_length" + struct.pack("<I", 4)  # the type of its number
    at = data.index(key) + len(key)
    with open(out, "wb") as f:
        f.write(data[:at] + struct.pack("<I", tokens) + data[at + 4:])
    return out


def cached(body):
    return body["usage"]["prompt_tokens_details"]["cached_tokens"]


def complete(c, ids, **fields):
    status, body = c.request("POST", "/v1/completions", {"model": "demo", "prompt": ids, "temperature": 0, "ignore_eos": True, "max_tokens": 20, **fields})
    assert status == 200, (status, body)
    return body


def spills(c):
    return c.hpctl("describe", "demo")["spills"]


def prompts_of(c, n):
    ids = c.hpctl("model", "tokenize", DEMO, "--text", STORY)["ids"]
    return [((ids[k:] + ids) * 40)[:TOKENS] for k in range(n)]


def files_of(c):
    found = []
    for folder, _, files in os.walk(c.folder):
        if os.path.basename(folder) == "spilled":
            found += [os.path.join(folder, f) for f in files]
    return found


def restart(c, name, which=signal.SIGTERM):
    before = c.hpctl("describe", "demo")["generation"]
    c.kill(name, which)
    c.wait("it has ended", lambda: c.agent(name)["state"] == "dead")
    c.hpctl("local", "start", "--agent", name)
    c.wait("the deployment breaks", lambda: c.hpctl("describe", "demo")["generation"] > before)
    c.wait_serving("demo")


@test
def evicted_beginnings_come_back_from_memory_and_disk_and_after_a_restart():
    with Cluster(agents=2, cores=1, kv_spill_memory="4MB", kv_spill_disk="512MB") as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", *OPTIONS)
        prompts = prompts_of(c, 4)
        first = [complete(c, p) for p in prompts]

        def spilled():
            """What both verbs say; pages go from memory to the disk between two looks."""
            told, nodes = spills(c), {n["name"]: n["kv_spill"] for n in c.hpctl("node", "ls")}
            same = all(sum(n[key] for n in nodes.values()) == told[key] for key in ("memory_bytes", "disk_bytes"))
            return told["pages"] > PAGES and told["spilled"] >= 2 and told["disk_bytes"] > 0 and same and (told, nodes)

        told, nodes = c.wait("some are spilled, and both verbs say how many bytes they are", spilled)
        assert all(n["memory_limit_bytes"] == 4000000 and n["disk_limit_bytes"] == 512000000 for n in nodes.values()), nodes
        assert c.hpctl("node", "describe", "a0")["kv_spill"] == nodes["a0"] and " of 4" in c.run("node", "describe", "a0").stdout, c.run("node", "describe", "a0").stdout
        assert "KV SPILLED" in c.run("node", "ls").stdout and " of 512" in c.run("node", "ls").stdout, c.run("node", "ls").stdout
        body = complete(c, prompts[0])
        told = spills(c)
        assert cached(body) == 64 * PAGES and told["hits"] == 1 and told["tokens"] == 64 * PAGES, (cached(body), told)
        assert body["choices"] == first[0]["choices"], (body, first[0])
        assert all(os.stat(f).st_mode & 0o777 == 0o600 for f in files_of(c)), files_of(c)
        # Another prompt keeps its first 60 %: those stay where they are, and the others are read back.
        complete(c, prompts[1][:1200] + prompts[3][:100], max_tokens=1)
        before = spills(c)
        body = complete(c, prompts[1])
        told = spills(c)
        assert cached(body) == 64 * PAGES and told["hits"] == before["hits"] + 1, (cached(body), before, told)
        assert told["tokens"] == before["tokens"] + 64 * (PAGES - 1200 // 64), (before, told)
        assert body["choices"] == first[1]["choices"], (body, first[1])
        # An agent is started anew: what it had in memory was saved.
        restart(c, "a1")
        c.wait("it is found again", lambda: spills(c)["pages"] > PAGES)
        body = complete(c, prompts[1])
        assert cached(body) == 64 * PAGES and body["choices"] == first[1]["choices"], (cached(body), body)
        metrics = c.request("GET", "/metrics")[1]
        assert 'hp_spill_hits_total{deployment="demo"} 4' in metrics, metrics
        people = c.run("describe", "demo").stdout
        assert "4 hits (%d tokens; 0 swaps)" % (told["tokens"] + 64 * PAGES) in people and " spilled; " in people, people


@test
def pages_with_which_several_begin_are_spilled_once_and_come_back_to_each():
    with Cluster(agents=1, cores=1, kv_spill_disk="512MB") as c:
        c.deploy("demo", DEMO, "--agents", "a0", *OPTIONS)
        text = lambda k, n: [3 + (i * i + k * 7 + i * k) % 400 for i in range(n)]  # noqa: E731
        common = 64 * 24
        prompts = [text(0, common) + text(k, TOKENS - common) for k in range(1, 7)]
        first = [complete(c, prompts[0])]
        for k in (7, 8):
            complete(c, text(k, TOKENS), max_tokens=1)
        alone = c.wait("the first is spilled", lambda: spills(c)["disk_bytes"] and spills(c))
        first += [complete(c, p) for p in prompts[1:]]
        for k in (9, 10, 11):
            complete(c, text(k, TOKENS), max_tokens=1)
        told = c.wait("others are, too", lambda: spills(c)["spilled"] >= 8 and len(files_of(c)) >= 8 and spills(c))
        each = alone["disk_bytes"] / alone["pages"]
        assert told["disk_bytes"] < 1.02 * each * told["pages"], (told, each)  # heads of files are small
        restart(c, "a0", signal.SIGKILL)
        c.wait("they are found again", lambda: spills(c)["pages"] >= told["pages"])
        for k, p in enumerate(prompts):
            body = complete(c, p)
            assert body["choices"] == first[k]["choices"], (k, cached(body), body, first[k])
        told = spills(c)
        assert told["hits"] >= 4 and told["failed"] == 0 and told["dropped"] == 0, told


@test
def a_file_that_was_changed_is_dropped_and_the_prompt_computed():
    with Cluster(agents=1, cores=1, kv_spill_disk="512MB") as c:
        c.deploy("demo", DEMO, "--agents", "a0", *OPTIONS)
        prompts = prompts_of(c, 4)
        first = [complete(c, p) for p in prompts]
        c.wait("some are spilled", lambda: spills(c)["pages"] > PAGES)
        restart(c, "a0", signal.SIGKILL)
        c.wait("they are found again", lambda: spills(c)["pages"] > PAGES)
        for i, file in enumerate(files_of(c)):
            with open(file, "r+b") as f:
                if i % 2:
                    f.truncate(os.path.getsize(file) - 1)
                else:
                    f.seek(os.path.getsize(file) // 2)
                    byte = f.read(1)
                    f.seek(-1, 1)
                    f.write(bytes([byte[0] ^ 1]))
        body = complete(c, prompts[0])
        told = spills(c)
        assert cached(body) == 0 and told["failed"] == 1 and told["dropped"] == 1 and told["hits"] == 0, (cached(body), told)
        assert body["choices"] == first[0]["choices"], (body, first[0])


@test
def what_a_window_sees_is_spilled_and_comes_back():
    if not os.path.exists(WINDOWED):
        skip("no models of families here")
    length = 31 * 64
    with tempfile.TemporaryDirectory() as folder, Cluster(agents=2, cores=1, kv_spill_memory="4MB", kv_spill_disk="64MB") as c:
        model = with_longer_context(WINDOWED, os.path.join(folder, "model.gguf"), 2048)
        c.deploy("demo", model, "--agents", "a0,a1", "--compute", "f32", "--max-sequences", "2")
        prompts = [[3 + (i * i + k * 7 + i * k) % 400 for i in range(length + 1)] for k in range(5)]
        first = [complete(c, p, max_tokens=8) for p in prompts]
        c.wait("all but two are spilled", lambda: spills(c)["pages"] == 3)  # each is of use as a whole
        for i in (0, 1):
            body = complete(c, prompts[i], max_tokens=8)
            assert cached(body) == length and body["choices"] == first[i]["choices"], (cached(body), body, first[i])
        body = complete(c, prompts[0][:300] + [5] * (length - 299), max_tokens=8)
        told = spills(c)
        assert cached(body) == 0 and told["hits"] == 2 and told["failed"] == 0, (cached(body), told)
        # Near the end of a page the window has left what the page's beginning sees.
        complete(c, prompts[0][:length - 8], max_tokens=22)
        for p in prompts[1:3]:
            complete(c, p, max_tokens=8)
        assert spills(c)["given_up"] > told["given_up"], (spills(c), told)


@test
def whoever_gave_way_comes_back_with_what_it_had():
    with Cluster(agents=2, cores=1, memory="30MB", kv_spill_memory="4MB", kv_spill_disk="64MB") as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--max-sequences", "8", "--max-context", "512", "--prefix-cache", "off")
        prompts = [p[:180] for p in prompts_of(c, 8)]
        texts = [None] * 8
        complete(c, [1, 2, 3], max_tokens=1)  # answers are short, it seems

        def one(i):
            texts[i] = complete(c, prompts[i], max_tokens=150)["choices"][0]["text"]

        threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        d = c.hpctl("describe", "demo")
        assert d["growth"]["preempted"] > 0 and d["spills"]["swaps"] > 0, (d["growth"], d["spills"])
        for i in range(4, 8):  # the younger half
            assert texts[i] == complete(c, prompts[i], max_tokens=150)["choices"][0]["text"], i


main()
