"""Weights on disk that go bad: no wrong answer, no dead agent."""
import glob
import os

from cluster import Cluster, DEMO
from tap import main, test

QUESTION = "What is the capital of France?"


def store_file(c, agent):
    found = glob.glob(os.path.join(c.folder, "state", "**", agent, "**", "store", "models", "*", "files", "*.gguf"), recursive=True)
    assert len(found) == 1, found
    return found[0]


def pids(c):
    return sorted(a["pid"] for a in c.local()["agents"])


def answers(c, expected):
    """The same answer as before, or a failure by name; true once it is the answer."""
    status, body = c.chat("demo", QUESTION)
    if status != 200:
        assert body["error"]["message"], body
        return False
    got = body["choices"][0]["message"]["content"]
    assert got == expected, f"another answer: {got!r}, not {expected!r}"
    return True


@test
def a_file_that_is_cut_while_it_serves_ends_neither_agent_nor_truth():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1")
        expected, before = c.answer("demo", QUESTION), pids(c)
        os.truncate(store_file(c, "a0"), 4096)
        c.wait("it answers again", lambda: answers(c, expected), 60)
        assert pids(c) == before, "an agent died"
        log = open(glob.glob(os.path.join(c.folder, "state", "**", "a0", "log"), recursive=True)[0]).read()
        assert "could not be read" in log and "chunk_rotten" in log, log[-2000:]


@test
def weights_that_are_overwritten_while_they_serve_give_no_other_answer():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        expected, before = c.answer("demo", QUESTION), pids(c)
        with open(store_file(c, "a0"), "r+b") as f:  # as long as it was
            n = f.seek(0, os.SEEK_END) // 2
            f.seek(n)
            f.write(b"\x33" * n)
        c.wait("it answers again", lambda: answers(c, expected), 60)
        assert pids(c) == before, "an agent died"
        log = open(glob.glob(os.path.join(c.folder, "state", "**", "a0", "log"), recursive=True)[0]).read()
        assert "somebody wrote to the file" in log and "chunk_rotten" in log, log[-2000:]


@test
def a_byte_that_rots_is_found_before_its_weights_are_used():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        expected = c.answer("demo", QUESTION)
        c.hpctl("undeploy", "demo")
        file = store_file(c, "a1")
        with open(file, "r+b") as f, open(DEMO, "rb") as good:
            # The last weights of the file that are there: blocks of zeros are holes of a stage that is elsewhere.
            f.seek(0, os.SEEK_END)
            at = f.tell() - 4096
            while True:
                f.seek(at)
                good.seek(at)
                mine, right = f.read(64), good.read(64)
                if mine == right and any(mine):
                    break
                at -= 4096
                assert at > 0
            f.seek(at)
            f.write(bytes(b ^ 0x20 for b in mine))
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        assert c.answer("demo", QUESTION) == expected
        with open(file, "rb") as f:
            f.seek(at)
            assert f.read(64) == right, "the store kept what had rotted"


main()
