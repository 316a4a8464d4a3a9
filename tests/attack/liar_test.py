"""Members that lie over the control channel, with the key of an agent that was taken over: nothing that they say ends the coordinator, disturbs deployments in which they have no stage, or speaks for
another agent; a deployment that counts on them fails with a reason, and works once they are removed."""
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proc"))

from cluster import BUILD, Cluster, DEMO, Failed, SCALE
from tap import main, test

MIB = 1 << 20
SEED = int(os.environ.get("HP_SEED", "61"))
PROMPT = {"model": "demo", "prompt": "Once upon a time", "temperature": 0, "max_tokens": 100, "ignore_eos": True}
SCORED = {"logprobs": 3, "prompt_logprobs": 5, "echo": True}


def memory(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS:"))


def key_of(c, name):
    return os.path.join(c.folder, "state", "agents", name, "agent.key")


class Liar:
    """The agent of this name is killed, and a liar has its key."""

    def __init__(self, c, name, seconds, seed):
        c.kill(name)
        c.wait(f"{name} is lost", lambda: c.member(name) == "lost", 20)
        token = c.hpctl("node", "token", "create")["token"]
        address = c.hpctl("context", "ls")[0]["control"]
        self.process = subprocess.Popen([os.path.join(BUILD, "tests", "attack", "liar"), address, token.split("-")[1], key_of(c, name), name, str(seconds), str(seed)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def running(self):
        return self.process.poll() is None

    def end(self):
        said, complaint = self.process.communicate(timeout=60 * SCALE)
        assert self.process.returncode == 0, complaint
        return said.strip()


def text(c, n_ids=0, k=0):
    prompt = {"prompt": [3 + (i * i + 7 * k + i * k) % 500 for i in range(n_ids)]} if n_ids else {}
    status, body = c.request("POST", "/v1/completions", dict(PROMPT, **prompt))
    assert status == 200, body
    return body["choices"][0]["text"]


@test
def a_liar_beside_a_deployment_changes_nothing_in_it():
    with Cluster(agents=3, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        whole, generation = text(c), c.hpctl("describe", "demo")["generation"]
        pid = c.local()["coordinator"]["pid"]
        told = 0
        for round_ in range(8):
            if round_ > 1 and told:
                break  # else the box was so busy that few logs were looked at
            liar = Liar(c, "a2", 6, SEED + round_)
            before, answers = memory(pid), 0
            while liar.running():
                assert text(c) == whole, f"seed {SEED + round_}"
                c.hpctl("ps")
                c.hpctl("node", "ls")
                logs = c.run("logs", "a2").stdout if answers < 5 or not told else ""  # a terminal would obey what it says there
                assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", logs), repr(logs)
                told += logs == "info?]0;obey??[2J?1m\ttab\nlast\n"  # mostly: it also says bytes that are flipped
                answers += 1
            grown = memory(pid) - before
            print(f"# seed {SEED + round_}: {liar.end()}; {answers} answers beside it; the coordinator grew by {grown / MIB:.1f} MiB")
            assert c.local()["coordinator"]["pid"] == pid and os.path.exists(f"/proc/{pid}")
            assert c.hpctl("describe", "demo")["generation"] == generation, "the deployment was rewired"
            assert grown < 100 * MIB, grown
            assert answers, "nobody asked beside it"
            c.hpctl("local", "start", "--agent", "a2")
            c.wait("a2 is back", lambda: c.member("a2") == "ready", 20)
        assert told > 0


@test
def a_liar_within_a_deployment_fails_it_with_a_reason_until_it_is_removed():
    with Cluster(agents=2, cores=1, kv_spill_memory="8MB") as c:
        pid = c.local()["coordinator"]["pid"]
        c.deploy("demo", DEMO, "--agents", "a0", "--compute", "f32", "--max-sequences", "1", "--max-context", "1024")
        whole, spilled, before = text(c), [text(c, 900, k) for k in range(2)], memory(pid)
        for round_ in range(2):
            liar = Liar(c, "a1", 8, SEED + 100 + round_)
            c.wait("the liar was let in", lambda: c.member("a1") in ("ready", "joined", "suspect"), 10)
            codes = []
            while liar.running():
                began = time.monotonic()
                try:
                    c.hpctl("deploy", DEMO, "--name", "both", "--agents", "a0,a1", "--compute", "f32", timeout=60)
                    for fields in ({}, SCORED):
                        status, body = c.request("POST", "/v1/completions", dict(PROMPT, model="both", **fields), timeout=60)
                        codes.append(status)
                        assert status == 200 or body["error"]["message"], body
                except Failed as e:
                    codes.append(e.code)
                    assert e.message, e
                assert time.monotonic() - began < 60 * SCALE
                assert text(c) == whole
                assert [text(c, 900, k) for k in range(2)] == spilled  # each makes room for the other
                c.take_away("both")
            print(f"# seed {SEED + 100 + round_}: {liar.end()}; deployments with it: {codes}")
            grown = memory(pid) - before
            assert codes and grown < 200 * MIB, (codes, grown)
            assert c.hpctl("describe", "demo")["spills"]["failed"] == 0 and c.run("node", "ls").returncode == 0
            assert os.path.exists(f"/proc/{pid}")
            c.hpctl("local", "start", "--agent", "a1")
            c.wait("a1 is back", lambda: c.member("a1") == "ready", 30)
        c.deploy("both", DEMO, "--agents", "a0,a1", "--compute", "f32")
        assert c.request("POST", "/v1/completions", dict(PROMPT, model="both"))[1]["choices"][0]["text"] == whole


main()
