"""Who may join, what moves, and what the verbs say of it."""
import datetime
import os
import re
import subprocess
import time

from cluster import BUILD, SCALE, Cluster, DEMO, Failed, free_port
from tap import main, test


def start_agent(c, token, name, *args, server=None):
    folder = os.path.join(c.folder, "extra", name)
    os.makedirs(folder, exist_ok=True)
    control = server or c.hpctl("context", "ls")[0]["control"]
    return subprocess.Popen([os.path.join(BUILD, "hp-agent"), "--join", control, "--token", token, "--name", name, "--dir", folder, "--network", "lo", *args],
                            stdout=subprocess.DEVNULL, stderr=open(os.path.join(folder, "log"), "w"))


def log_of(c, name):
    with open(os.path.join(c.folder, "extra", name, "log")) as f:
        return f.read()


@test
def a_token_lets_one_agent_in_once():
    with Cluster(agents=1, cores=1) as c:
        token = c.hpctl("node", "token", "create")["token"]
        first = start_agent(c, token, "b0")
        c.wait("b0 is ready", lambda: c.member("b0") == "ready", 10)
        second = start_agent(c, token, "b1")
        assert second.wait(20) != 0
        assert "token" in log_of(c, "b1"), log_of(c, "b1")
        wrong = start_agent(c, token[:-4] + ("0000" if token[-4:] != "0000" else "1111"), "b2")
        assert wrong.wait(20) != 0
        nonsense = start_agent(c, "hello", "b3")
        assert nonsense.wait(20) != 0 and "join token" in log_of(c, "b3"), log_of(c, "b3")
        assert {m["name"] for m in c.hpctl("node", "ls")} == {"a0", "b0"}
        first.terminate()
        assert first.wait(20) == 0


@test
def an_agent_that_opens_the_data_channel_that_the_cluster_wants_is_no_rival_of_itself():
    """It learns of that by joining, and joins once more: not after the second that another process with its key would have to wait."""
    with Cluster(agents=1, cores=1, data="tcp") as c:
        agent = start_agent(c, c.hpctl("node", "token", "create")["token"], "b0")

        def joined():
            lines = [line for line in log_of(c, "b0").splitlines() if " joined " in line]
            return [datetime.datetime.fromisoformat(line.split()[0].rstrip("Z")) for line in lines] if len(lines) > 1 else None

        first, second = c.wait("it has joined twice", joined, 10)
        assert " data_reopen mode=tcp " in log_of(c, "b0") and (second - first).total_seconds() < 0.95 * SCALE, log_of(c, "b0")
        c.wait("it is ready", lambda: c.member("b0") == "ready", 10)
        agent.terminate()
        assert agent.wait(20) == 0


@test
def nothing_listens_beyond_loopback():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1")
        state = c.local()
        pids = {state["coordinator"]["pid"], *(a["pid"] for a in state["agents"])}
        lines = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True).stdout.splitlines()
        own = [line for line in lines if any(f"pid={pid}," in line for pid in pids)]
        assert own, "ss shows none of our sockets"
        for line in own:
            address = line.split()[3]
            assert re.match(r"(127\.|\[::1\]|\[::ffff:127\.)", address), line


@test
def weights_move_once_and_only_where_they_are_needed():
    with Cluster(agents=2, cores=1) as c:
        first = c.deploy("one", DEMO, "--agents", "a0,a1", "--upload")
        moved = sum(s["moved_bytes"] for s in first["stages"])
        size = os.path.getsize(DEMO)
        assert 0.7 * size < moved <= size, (moved, size)
        held = lambda: {h["agent"]: h["bytes"] for m in c.hpctl("weights", "ls") for h in m["agents"]}
        c.wait("both say what they hold", lambda: set(held()) == {"a0", "a1"} and all(0 < b < size for b in held().values()))
        c.hpctl("undeploy", "one")
        second = c.deploy("two", DEMO, "--agents", "a0,a1", "--upload")
        assert sum(s["moved_bytes"] for s in second["stages"]) == 0, second["stages"]
        try:
            c.hpctl("weights", "rm", c.hpctl("weights", "ls")[0]["model"])
            raise AssertionError("weights in use were removed")
        except Failed as e:
            assert e.code == "busy", e
        c.hpctl("undeploy", "two")
        c.hpctl("weights", "rm", c.hpctl("weights", "ls")[0]["model"])
        c.wait("no weights are left", lambda: c.hpctl("weights", "ls") == [], 5)


@test
def a_model_that_does_not_fit_is_refused_with_what_is_missing():
    with Cluster(agents=2, cores=1, memory="3MB") as c:
        try:
            c.deploy("demo", DEMO)
            raise AssertionError("it fits?")
        except Failed as e:
            assert e.rc == 6 and e.code == "infeasible", e
            assert re.search(r"the model needs [0-9.]+ MB .*\(a0 [0-9.]+ MB, a1 [0-9.]+ MB.*: [1-9][0-9]* bytes are missing", e.message), e.message


@test
def layers_go_where_they_were_told():
    with Cluster(agents=2, cores=1) as c:
        d = c.deploy("demo", DEMO, "--layers", "0-4:a1,5-17:a0")
        assert [(s["agent"], s["first_layer"], s["last_layer"]) for s in d["stages"]] == [("a1", 0, 4), ("a0", 5, 17)], d["stages"]
        for bad, word in (("0-4:a0", "layer"), ("0-4:a0,6-17:a1", "5"), ("0-17:nobody", "nobody"), ("0-9:a0,9-17:a1", "9")):
            try:
                c.deploy("bad", DEMO, "--layers", bad)
                raise AssertionError(f"{bad} was taken")
            except Failed as e:
                assert word in e.message, (bad, e.message)


@test
def verbs_end_with_the_documented_codes():
    with Cluster(agents=1, cores=1) as c:
        def code(*args):
            return c.run(*args).returncode

        assert code("version") == 0
        assert code("deploy") == 2 and code("nonsense") == 2 and code("ps", "--what") == 2
        assert code("describe", "nothing") == 4 and code("deploy", "/no/such/file.gguf") == 4
        for verb in ("local up", "local ls", "local start", "local down", "deploy", "ps", "describe", "undeploy", "run", "chat", "node ls", "node describe", "node token create",
                     "topo", "weights ls", "weights rm", "logs", "doctor", "version", "model describe", "model logits"):
            help_text = c.run(*verb.split(), "--help")
            assert help_text.returncode == 0 and "examples:" in help_text.stdout and "-o" in help_text.stdout, verb
        topo = c.hpctl("topo")
        assert topo["format"] == "hp-cluster/1" and topo["nodes"][0]["devices"], topo
        assert c.run("logs", "a0").stdout.strip()
        complete = f'PATH={BUILD}:$PATH; source <(hpctl completion bash); COMP_WORDS=(hpctl node token ""); COMP_CWORD=3; _hpctl; echo "${{COMPREPLY[*]}}"'
        assert subprocess.run(["bash", "-c", complete], capture_output=True, text=True).stdout.split() == ["create", "ls"]
        c.kill("coordinator")
        assert code("ps") == 3


main()
