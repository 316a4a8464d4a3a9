"""An agent without weights keeps copies of long sequences: whatever becomes of it, of what it keeps them for or of the coordinator, clients see their answers, and nothing stays where it is of no use."""
import os
import resource
import signal

import resuming
from cluster import SCALE, Cluster, DEMO
from readers import Reader, finish, whole
from tap import main, test

BODY = {"model": "demo", "prompt": "It was a dark and stormy night. " * 60, "temperature": 1.0, "seed": 7, "ignore_eos": True, "max_tokens": 900}


def copied(c):
    return c.hpctl("describe", "demo")["replicas"]["copied"]


def keeper(c):
    """Where copies are kept; None: nowhere now."""
    told = c.hpctl("describe", "demo/copy")
    return told["stages"][0] if told["state"] == "serving" else None


def when_copied(c, key=None, **more):
    """An answer that is being written and has a copy; those before it may have ended too soon for that. With a key it is asked for again until all of it is there."""
    for turn in range(20):
        before = copied(c)
        reader = resuming.Reader(c.port, BODY, f"{key}{turn}") if key else Reader(c, dict(BODY, **more))
        c.wait("it is copied", lambda: copied(c) > before or not reader.is_alive())
        if reader.is_alive():
            return reader
        assert reader.failure is None, reader.failure
    raise AssertionError("all answers ended before they were copied")


@test
def whatever_becomes_of_a_keeper_its_deployment_or_the_coordinator_no_answer_suffers():
    with Cluster(agents=3, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--prefix-cache", "off", "--replicate-kv", "128", "--replicate-to", "auto")
        c.wait("copies are kept", lambda: keeper(c))
        right = whole(c, BODY)

        # It stands still while copies go there.
        pid = c.agent(keeper(c)["agent"])["pid"]
        reader = when_copied(c)
        os.kill(pid, signal.SIGSTOP)
        finish([reader], [right])
        os.kill(pid, signal.SIGCONT)
        print(f"# stopped: longest pause {reader.pause:.3f} s")
        assert reader.pause < 1 * SCALE, reader.pause
        c.wait("it goes back to where no stage is", lambda: c.member("a2") == "ready" and (keeper(c) or {}).get("agent") == "a2", 30)

        # It goes together with a stage.
        reader = when_copied(c)
        for name in ("a2", "a1"):
            os.kill(c.agent(name)["pid"], signal.SIGKILL)
        for name in ("a2", "a1"):
            c.hpctl("local", "start", "--agent", name)
        finish([reader], [right])
        c.wait("copies are kept again", lambda: keeper(c), 30)

        # The coordinator goes, and then a stage.
        reader = when_copied(c, "one")
        c.kill("coordinator")
        c.hpctl("local", "start", "--coordinator")
        c.wait("it is copied anew", lambda: copied(c) or not reader.is_alive(), 30)
        c.kill("a1")
        c.hpctl("local", "start", "--agent", "a1")
        finish([reader], [right])
        c.wait("no copy stays that no coordinator knows", lambda: keeper(c) and keeper(c)["kv_used_tokens"] == 0, 30)

        # All of it goes while copies are on their way.
        reader = when_copied(c, max_tokens=1500)  # so long that it is on its way on fast boxes, too
        c.hpctl("undeploy", "demo")
        reader.join(60 * SCALE)
        assert "undeployed" in str(reader.failure), reader.failure
        c.wait("agents hold nothing", lambda: not c.hpctl("ps") and not any(c.hpctl("node", "describe", a)["stages"] for a in ("a0", "a1", "a2")))


@test
def copies_go_to_another_agent_where_the_best_one_cannot_store_a_model():
    with Cluster(agents=3, cores=1) as c:
        pid = c.agent("a2")["pid"]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # as if its disk were full
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--replicate-kv", "128", "--replicate-to", "auto")
        c.wait("copies are kept elsewhere", lambda: keeper(c) and keeper(c)["agent"] in ("a0", "a1"), 30)


main()
