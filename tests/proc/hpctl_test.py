"""What a person at a terminal meets: coordinators that restart under a verb, contexts on a laptop, files that -o names."""
# Waits: for coordinators that start, and terminals.
import json
import os
import select
import signal
import stat
import subprocess
import tempfile
import time

from cluster import BUILD, Cluster, DEMO, SCALE, ended, free_port
from tap import main, skip, test


def start(c, *args):
    return subprocess.Popen([os.path.join(BUILD, "hpctl"), *args], env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stuck_deploy(c, agent, *args):
    """A deploy that the coordinator knows and this agent, which is stopped, does not answer. On a busy box the agent may be taken for lost before it is asked: then once more."""
    for _ in range(10):
        c.kill(agent, signal.SIGSTOP)
        deploy = start(c, "deploy", DEMO, "--name", "demo", *args)
        c.wait("it is known", lambda: c.hpctl("ps") or deploy.poll() is not None, 30)
        if deploy.poll() is None:
            return deploy
        c.kill(agent, signal.SIGCONT)
        c.wait("the agent is back", lambda: c.member(agent) == "ready", 30)
        c.take_away("demo")
    raise AssertionError(f"{agent} is always lost before it is asked: {deploy.communicate()}")


def said_until(process, words):
    """What it says on standard error up to the line that has these words, or to its end."""
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            break
    return said


def own_address():
    """An address of this box that is not loopback, as `ip` tells it."""
    out = subprocess.run(["ip", "-4", "-o", "addr", "show", "up"], capture_output=True, text=True).stdout
    found = [line.split()[3].split("/")[0] for line in out.splitlines() if " lo " not in line]
    return found[0] if found else None


@test
def a_cluster_keeps_nothing_open_of_whoever_started_it():
    with Cluster(agents=1, cores=1) as c:
        mine, theirs = os.pipe()
        os.set_inheritable(theirs, True)
        done = subprocess.run([os.path.join(BUILD, "hpctl"), "local", "up", "--name", "second", "--agents", "1", "--dir", os.path.join(c.folder, "second")],
                              env=c.env, capture_output=True, pass_fds=[theirs], timeout=60 * SCALE)
        assert done.returncode == 0, done.stderr
        os.close(theirs)
        assert select.select([mine], [], [], 5 * SCALE)[0], "a daemon holds the pipe"
        assert os.read(mine, 1) == b""
        os.close(mine)


@test
def sizes_mean_the_same_to_all_programs():
    words = "is not a size such as 4GiB or 4G (in 1024s), 4GB (in 1000s), or bytes"
    for program, *args in (("hp-agent", "--join", "127.0.0.1:1", "--memory", "8Q"), ("hp-agent", "--join", "127.0.0.1:1", "--store-limit", "0"),
                           ("hpctl", "local", "up", "--memory", "8Q"), ("hp-coordinator", "--http-max-body", "8Q")):
        done = subprocess.run([os.path.join(BUILD, program), *args], capture_output=True, text=True, timeout=20 * SCALE)
        assert done.returncode and words in done.stderr, (program, done.stderr)
    for program, *args, says in (("hp-agent", "--join", "127.0.0.1:1", "--memory", "24K", "--memory 24K: an agent needs at least 1 MiB"),
                                 ("hpctl", "local", "up", "--agents", "0", "--agents 0: "), ("hpctl", "local", "up", "--http-port", "70000", "--http-port: 70000")):
        done = subprocess.run([os.path.join(BUILD, program), *args], capture_output=True, text=True, timeout=20 * SCALE)
        assert done.returncode == 2 and says in done.stderr, (program, done.stderr)
    with Cluster(agents=1, cores=1, memory="1.5G") as c:
        token = c.hpctl("node", "token", "create")["token"]
        with open(os.path.join(c.folder, "state", "coordinator", "coordinator.json")) as f:
            control = json.load(f)["control"]
        by_hand = subprocess.Popen([os.path.join(BUILD, "hp-agent"), "--join", control, "--token", token, "--name", "hand", "--memory", "1.5G", "--cores", "any:1",
                                    "--dir", os.path.join(c.folder, "hand")], stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 20 * SCALE
            while len(nodes := c.hpctl("topo")["nodes"]) < 2 and time.monotonic() < end:
                time.sleep(0.1)
            memory = {n["name"]: n["devices"][0]["memory_bytes"] for n in nodes}
            assert len(memory) == 2 and memory["hand"] == memory["a0"], memory
        finally:
            by_hand.terminate()
            by_hand.wait()


@test
def an_agent_that_has_joined_does_not_miss_the_file_of_its_token():
    with Cluster(agents=1, cores=1) as c:
        with open(os.path.join(c.folder, "state", "coordinator", "coordinator.json")) as f:
            control = json.load(f)["control"]
        token = os.path.join(c.folder, "token")
        line = [os.path.join(BUILD, "hp-agent"), "--join", control, "--token-file", token, "--name", "hand", "--memory", "1G", "--cores", "any:1", "--dir", os.path.join(c.folder, "hand")]
        done = subprocess.run(line, capture_output=True, text=True, timeout=20 * SCALE)
        assert done.returncode and "token: No such file" in done.stderr, done.stderr
        for turn in range(2):
            if turn == 0:
                with open(token, "w") as f:
                    f.write(c.hpctl("node", "token", "create")["token"])
            else:
                os.unlink(token)
            hand = subprocess.Popen(line, stderr=subprocess.DEVNULL)
            try:
                c.wait("the agent is there", lambda: any(n["name"] == "hand" and n["state"] == "ready" for n in c.hpctl("node", "ls")), 20)
            finally:
                hand.terminate()
                hand.wait(20 * SCALE)
            c.wait("the agent is gone", lambda: any(n["name"] == "hand" and n["state"] != "ready" for n in c.hpctl("node", "ls")), 20)


@test
def a_coordinator_that_restarts_under_a_deploy_is_asked_again():
    with Cluster(agents=2, cores=1) as c:
        coordinator = c.pids()["coordinator"]
        deploy = stuck_deploy(c, "a1", "--agents", "a0,a1", "-o", "json")
        os.kill(coordinator, signal.SIGKILL)  # at once: it takes an agent that is silent for lost
        c.wait("the coordinator is no more", lambda: ended(coordinator))
        said = said_until(deploy, "does not answer")
        c.hpctl("local", "start", "--coordinator")
        c.kill("a1", signal.SIGCONT)
        out, more = deploy.communicate(timeout=60 * SCALE)
        said += more
        assert deploy.returncode == 0, (deploy.returncode, said)
        assert json.loads(out)["state"] == "serving", out
        assert "does not answer" in said and "asking again" in said, said


@test
def a_coordinator_that_stays_away_is_noticed_within_two_seconds():
    with Cluster(agents=1, cores=1) as c:
        coordinator = c.pids()["coordinator"]
        deploy = stuck_deploy(c, "a0", "--agents", "a0")
        os.kill(coordinator, signal.SIGKILL)
        killed = time.monotonic()
        assert "does not answer" in said_until(deploy, "does not answer")
        assert time.monotonic() - killed < 3.5 * SCALE
        deploy.kill()
        deploy.wait()
        c.kill("a0", signal.SIGCONT)


@test
def an_undeploy_whose_coordinator_restarts_is_asked_again_and_done():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO)
        coordinator = c.pids()["coordinator"]
        c.kill("a0", signal.SIGSTOP)  # it does not unload its stage, so that the verb waits, until it is taken for lost
        verb = start(c, "undeploy", "demo")
        c.wait("it is ending", lambda: [d["state"] for d in c.hpctl("ps")] == ["stopping"], 10)
        os.kill(coordinator, signal.SIGKILL)
        c.wait("the coordinator is no more", lambda: ended(coordinator))
        c.hpctl("local", "start", "--coordinator")
        c.kill("a0", signal.SIGCONT)
        _, said = verb.communicate(timeout=60 * SCALE)
        assert verb.returncode == 0 and "asking again" in said, (verb.returncode, said)
        c.wait("nothing is deployed", lambda: c.hpctl("ps") == [], 10)


@test
def ctrl_c_in_deploy_says_what_goes_on():
    with Cluster(agents=1, cores=1) as c:
        deploy = stuck_deploy(c, "a0", "--agents", "a0")
        deploy.send_signal(signal.SIGINT)
        _, said = deploy.communicate(timeout=20 * SCALE)
        assert deploy.returncode == 130 and "goes on" in said and "hpctl undeploy demo" in said, (deploy.returncode, said)
        c.kill("a0", signal.SIGCONT)


@test
def what_somebody_else_ended_was_not_interrupted_here():
    with Cluster(agents=1, cores=1) as c:
        deploy = stuck_deploy(c, "a0", "--agents", "a0")
        c.hpctl("undeploy", "demo")
        deploy.communicate(timeout=20 * SCALE)
        assert deploy.returncode == 1, deploy.returncode
        c.kill("a0", signal.SIGCONT)


@test
def every_verb_writes_the_file_that_o_names():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO)
        for verb in (["ps"], ["node", "ls"], ["describe", "demo"], ["node", "describe", "a0"], ["topo"], ["local", "ls"], ["context", "ls"], ["doctor"], ["version"],
                     ["weights", "ls"], ["run", "demo", "What is the capital of Cuba?"], ["node", "token", "create"]):
            file = os.path.join(c.folder, "out.json")
            if os.path.exists(file):
                os.unlink(file)
            done = c.run(*verb, "-o", file)
            assert done.returncode == 0, (verb, done.stderr)
            with open(file) as f:
                json.load(f)


@test
def a_context_is_carried_to_a_laptop():
    address = own_address()
    if not address:
        skip("this box has no address but loopback")
    with Cluster(agents=1, cores=1) as c:
        dir, control, api = os.path.join(c.folder, "home"), free_port(), free_port()
        c.hpctl("cluster", "init", "--name", "home", "--dir", dir, "--listen", f"0.0.0.0:{control}", "--http", f"0.0.0.0:{api}")
        server = [os.path.join(BUILD, "hp-coordinator"), "--dir", dir, "--listen", f"0.0.0.0:{control}", "--http", f"0.0.0.0:{api}", "--name", "home"]
        # It does not listen beyond loopback without an API key; one is made while it listens there.
        process = subprocess.Popen(server[:-4] + ["--http", f"127.0.0.1:{api}", "--name", "home"], stderr=subprocess.DEVNULL)
        try:
            c.wait("the coordinator answers", lambda: c.run("version", "--context", "home", "-o", "json").returncode == 0 and c.hpctl("node", "ls") is not None, 20)
            invitation = c.run("node", "token", "create", "--context", "home")
            assert f"--join {address}:{control}" in invitation.stderr and "127.0.0.1" not in invitation.stderr, invitation.stderr
            file = os.path.join(c.folder, "home.json")
            done = c.run("context", "export", "home", "-o", file)
            assert done.returncode == 0, done.stderr
            assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
            with open(file) as f:
                context = json.load(f)
            assert context["control"] == f"{address}:{control}" and context["http"] == f"http://{address}:{api}" and context["api_key"], context
            process.terminate()
            process.wait()
            process = subprocess.Popen(server, stderr=subprocess.DEVNULL)
            laptop = dict(c.env, HP_CONFIG_DIR=os.path.join(c.folder, "laptop"))

            def hpctl(*args):
                return subprocess.run([os.path.join(BUILD, "hpctl"), *args], env=laptop, capture_output=True, text=True, timeout=60 * SCALE)

            assert hpctl("context", "import", file).returncode == 0
            assert hpctl("context", "import", file).returncode == 1
            c.wait("it answers the laptop", lambda: hpctl("node", "ls").returncode == 0, 20)
            said = hpctl("run", "nothing", "Hello").stderr
            assert "nothing" in said and "API key" not in said, said  # the API took the context's key, and has no such model
            assert hpctl("context", "rm", "home").returncode == 0 and "no cluster" in hpctl("ps").stderr
        finally:
            process.kill()
            process.wait()


@test
def hpctl_has_a_key_where_the_api_wants_one():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO)
        c.hpctl("key", "create", "somebody")
        assert "Havana" in c.run("run", "demo", "What is the capital of Cuba?", "--temperature", "0").stdout
        alone = c.run("run", "demo")
        assert alone.returncode == 2 and "demo is a deployment, and a prompt for it is missing" in alone.stderr and "hpctl chat demo" in alone.stderr, alone.stderr


@test
def a_started_agent_is_there_or_the_verb_fails():
    with Cluster(agents=2, cores=1) as c:
        c.kill("a1")
        done = c.run("local", "up")
        assert done.returncode == 1 and "hpctl local start --name local" in done.stderr, done.stderr
        state = c.hpctl("local", "start")
        assert [a["member"] for a in state["agents"]] == ["ready", "ready"], state
        c.kill("a1")
        c.wait("a1 is lost", lambda: c.member("a1") == "lost", 10)
        c.hpctl("node", "rm", "a1")
        assert c.member("a1") is None
        c.hpctl("local", "start", "--agent", "a1")
        assert c.member("a1") == "ready"


@test
def without_a_current_context_the_others_are_named():
    with Cluster(agents=1, cores=1) as c:
        os.unlink(os.path.join(c.env["HP_CONFIG_DIR"], "current"))
        done = c.run("ps")
        assert done.returncode == 3 and "local" in done.stderr and "context use" in done.stderr, done.stderr
        c.hpctl("context", "use", "local")


@test
def an_agent_that_nobody_answers_says_so():
    with Cluster(agents=1, cores=1) as c:
        token, folder = c.hpctl("node", "token", "create")["token"], os.path.join(c.folder, "lonely")
        command = [os.path.join(BUILD, "hp-agent"), "--token", token, "--dir", folder, "--network", "lo", "--join", f"127.0.0.1:{free_port()}"]
        agent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        started = time.monotonic()
        for line in agent.stderr:
            if "coordinator_silent" in line:
                break
        assert "no answer" in line and time.monotonic() - started < 20 * SCALE
        agent.kill()
        agent.wait()
        wrong = subprocess.run(command[:-1] + ["127.0.0.1:9", "--network", "nosuch0"], capture_output=True, text=True)
        assert wrong.returncode == 2 and "nosuch0" in wrong.stderr and "lo" in wrong.stderr, wrong.stderr


@test
def an_api_that_was_opened_to_other_boxes_later_is_exported_so():
    address = own_address()
    if not address:
        skip("this box has no address but loopback")
    with Cluster(agents=1, cores=1) as c:
        dir, control, api = os.path.join(c.folder, "home"), free_port(), free_port()
        c.hpctl("cluster", "init", "--name", "home", "--dir", dir, "--listen", f"0.0.0.0:{control}", "--http", f"127.0.0.1:{api}")
        started = [os.path.join(BUILD, "hp-coordinator"), "--dir", dir, "--listen", f"0.0.0.0:{control}", "--name", "home", "--http"]
        log, file = open(os.path.join(c.folder, "home.log"), "w+"), os.path.join(c.folder, "home.json")
        process = subprocess.Popen([*started, f"0.0.0.0:{api}"], stderr=log)
        try:
            c.wait("the coordinator answers", lambda: c.run("node", "ls", "--context", "home").returncode == 0, 20)
            before = c.run("doctor", "--context", "home")
            assert before.returncode == 1 and "HTTP API" in before.stdout and "hpctl key create" in before.stdout, before.stdout
            refused = c.run("run", "nothing", "Hello", "--context", "home")
            assert refused.returncode == 4 and 'no deployment "nothing"' in refused.stderr, refused.stderr
            log.seek(0)
            assert "hpctl key create" in log.read()
            done = c.run("context", "export", "home", "-o", file)
            with open(file) as f:
                assert json.load(f)["http"] == f"http://{address}:{api}" and "warning" not in done.stderr, done.stderr
            c.wait("doctor reaches both", lambda: c.run("doctor", "--context", "home").returncode == 0, 10)
        finally:
            process.kill()
            process.wait()
            log.close()


@test
def doctor_says_that_a_laptop_does_not_reach_the_api():
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        file = os.path.join(c.folder, "home.json")
        made = c.run("context", "export", "local", "-o", file)
        assert "an API key was made" in made.stderr and "an API key was made" not in c.run("context", "export", "local", "-o", file).stderr, made.stderr
        with open(file) as f:
            context = json.load(f)
        with open(file, "w") as f:
            json.dump(dict(context, http=f"http://127.0.0.1:{free_port()}"), f)
        own = c.env["HP_CONFIG_DIR"]
        c.env["HP_CONFIG_DIR"] = os.path.join(c.folder, "laptop")
        c.run("context", "import", file)
        done, refused = c.run("doctor", "-o", "json"), c.run("run", "demo", "Hello")
        c.env["HP_CONFIG_DIR"] = own
        assert done.returncode == 1 and [f for f in json.loads(done.stdout) if f["check"] == "HTTP API"][0]["state"] == "failed", done.stdout
        assert refused.returncode == 3 and "--http" in refused.stderr and "local ls" not in refused.stderr, refused.stderr


@test
def errors_say_what_to_do_next():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO)
        text = os.path.join(c.folder, "text.gguf")
        with open(text, "w") as f:
            f.write("not a model")
        for verb, rc, said in ((["describe", "no"], 4, "hpctl ps"), (["undeploy", "no"], 4, "hpctl ps"), (["rebalance", "no"], 4, "hpctl ps"), (["run", "no", "Hello"], 4, "hpctl ps"), (["node", "rm", "no"], 4, "hpctl node ls"),
                               (["logs", "no"], 4, "hpctl node ls"), (["key", "rm", "no"], 4, "hpctl key ls"), (["weights", "rm", "no"], 4, "hpctl weights ls"),
                               (["profile", "rm", "no"], 4, "hpctl profile ls"), (["context", "rm", "no"], 4, "hpctl context ls"), (["deploy", text], 1, "safetensors"),
                               (["deploy", DEMO, "--name", "other", "--max-sequences", "0"], 2, "at least 1"), (["deploy", DEMO, "--name", "other", "--agents", "no"], 4, "hpctl node ls")):
            done = c.run(*verb)
            assert done.returncode == rc and said in done.stderr, (verb, done.returncode, done.stderr)
        c.hpctl("key", "create", "somebody")
        c.env["HP_API_KEY"] = "hp-wrong"
        done = c.run("run", "demo", "Hello")
        assert done.returncode == 5 and "HP_API_KEY" in done.stderr, done.stderr


@test
def a_misspelt_name_gets_the_nearest_that_there_is():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO)
        c.hpctl("key", "create", "somebody")
        c.env["HP_API_KEY"] = c.hpctl("key", "create", "other")["key"]
        name = c.hpctl("context", "ls")[0]["name"]
        cluster = name[1] + name[0] + name[2:]
        for line, meant in ((["describe", "dmeo"], "demo"), (["undeploy", "Demo"], "demo"), (["run", "dem", "Hello"], "demo"), (["chat", "deno"], "demo"), (["rebalance", "demmo"], "demo"),
                            (["node", "describe", "a00"], "a0"), (["node", "drain", "A0"], "a0"), (["logs", "a0x"], "a0"), (["deploy", DEMO, "--name", "other", "--agents", "A0"], "a0"),
                            (["key", "rm", "sombody"], "somebody"), (["context", "rm", cluster], name), (["ps", "--context", cluster], name), (["local", "down", "--name", cluster], name),
                            (["local", "start", "--agent", "A0"], "a0")):
            done = c.run(*line)
            assert done.returncode in (3, 4) and f'did you mean "{meant}"?' in done.stderr, (line, done.returncode, done.stderr)
        assert "did you mean" not in c.run("describe", "a1").stderr and "did you mean" not in c.run("node", "describe", "a1").stderr  # another number, another agent
        assert "did you mean `hpctl deploy`?" in c.run("dply", DEMO).stderr
        done = c.run("chat", "demo", stdin="/hlep\n/exit\n", timeout=60)
        assert "did you mean /help?" in done.stderr, done.stderr
        key = {"Authorization": "Bearer " + c.env["HP_API_KEY"]}
        for path, model in (("/v1/completions", "dmeo"), ("/v1/embeddings", "org/Demo"), ("/completion", "demmo"), ("/api/generate", "demo2x"), ("/tokenize", "dmeo")):
            status, said = c.request("POST", path, {"model": model, "prompt": "x", "input": "x"}, headers=key)
            assert status == 404 and 'did you mean "demo"?' in json.dumps(said).replace("\\", ""), (path, said)
        for path in ("/v1/models/dmeo", "/props?model=dmeo", "/slots?model=dmeo"):
            status, said = c.request("GET", path, headers=key)
            assert status == 404 and 'did you mean "demo"?' in said["error"]["message"], (path, said)
        hidden = c.hpctl("key", "create", "few", "--models", "dmeoo")["key"]  # may not know what else there is
        status, said = c.request("POST", "/v1/completions", {"model": "dmeoo", "prompt": "x"}, headers={"Authorization": "Bearer " + hidden})
        assert status == 404 and "did you mean" not in said["error"]["message"], said


@test
def the_beginning_of_a_verb_lists_its_verbs():
    def hpctl(*args):
        return subprocess.run([os.path.join(BUILD, "hpctl"), *args], capture_output=True, text=True)

    for words in (["node"], ["node", "token"]):
        assert hpctl(*words).returncode == 2 and "node token create" in hpctl(*words).stdout, words
        assert hpctl(*words, "--help").returncode == 0 and "node token create" in hpctl(*words, "--help").stdout, words
    assert "node drain" not in hpctl("node", "token", "--help").stdout
    assert hpctl("node", "frob").returncode == 2 and "no verb" in hpctl("node", "frob").stderr
    assert json.loads(hpctl("node", "-o", "json").stdout)["error"]["code"]
    done = hpctl("local", "ls", "-o", "yaml")
    assert done.returncode == 2 and "-o ./yaml" in done.stderr and not os.path.exists("yaml"), done.stderr


@test
def a_cluster_is_kept_where_the_users_state_is():
    with Cluster(agents=1, cores=1) as c:
        c.env["XDG_STATE_HOME"] = os.path.join(c.folder, "state")
        made = c.hpctl("cluster", "init", "--name", "home")
        assert made["dir"] == os.path.join(c.folder, "state", "hp", "home", "coordinator") and os.path.exists(made["dir"]), made


@test
def a_deployment_that_does_not_exist_is_named_before_anything_is_asked():
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        for verb in (("chat", "demmo"), ("run", "demmo", "Hello!")):
            done = c.run(*verb, stdin="Hello!\n", timeout=20)
            assert done.returncode == 4 and 'no deployment "demmo"' in done.stderr and "hpctl ps" in done.stderr, (verb, done.stderr)
            assert not done.stdout, done.stdout


@test
def a_host_that_is_no_name_is_refused():
    for host in ("a b", "http://api.example", "api.example:80", ""):
        done = subprocess.run([os.path.join(BUILD, "hp-coordinator"), "--http-host", host], capture_output=True, text=True, timeout=20)
        assert done.returncode == 2 and f'--http-host "{host}"' in done.stderr, (host, done.stderr)


@test
def doctor_says_which_kernels_run_on_each_agent_and_why():
    with Cluster(agents=2, cores=1) as c:
        found = c.hpctl("doctor")
        at = next(i for i, f in enumerate(found) if f["check"].startswith("kernels of "))
        assert sorted(found[at]["check"].removeprefix("kernels of ").split(", ")) == ["a0", "a1"], found[at]
        here = next(f for f in found if f["check"] == "processor")
        assert found[at]["text"] == here["text"] and "this CPU" in here["text"], (found[at], here)
        node = c.hpctl("node", "describe", "a0")["node"]
        assert node["kernels"][0]["what"] == "instructions" and here["text"].startswith(node["kernels"][0]["how"]), node["kernels"]
        assert "KERNELS FOR" in c.run("node", "describe", "a0").stdout
        lines = c.run("doctor").stdout.splitlines()
        assert len(lines) > len(found) and max(map(len, lines)) <= 120, lines
        total = next(f["text"] for f in found if f["check"] == "memory").split()[0]
        assert abs(float(total) - node["total_memory_bytes"] * 1e-9) < 0.06 or os.path.exists("/sys/fs/cgroup/memory.max"), (total, node["total_memory_bytes"])


@test
def doctor_tells_the_memory_that_a_control_group_leaves():
    group = next((g for g in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup") if os.path.exists(g + "/memory.limit_in_bytes") or os.path.exists(g + "/memory.stat")), None)
    try:
        group = os.path.join(group, f"hp-test-{os.getpid()}")
        os.mkdir(group)
        limit = os.path.join(group, "memory.limit_in_bytes" if os.path.exists(group + "/memory.limit_in_bytes") else "memory.max")
        with open(limit, "w") as out:
            out.write(str(3 << 30))
    except (OSError, TypeError):
        skip("no control group of one's own can be made here")
    try:
        with tempfile.TemporaryDirectory() as folder:
            script = f"echo $$ > {group}/cgroup.procs && exec {BUILD}/hpctl doctor -o json"
            done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60 * SCALE, env=dict(os.environ, HP_CONFIG_DIR=folder))
        said = next(one["text"] for one in json.loads(done.stdout) if one["check"] == "memory")
        assert "3.2 GB of the box's" in said and os.path.basename(group) in said, said
    finally:
        os.rmdir(group)


@test
def local_down_waits_for_the_streams_that_its_coordinator_drains():
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        stream = c.stream("/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 100000, "temperature": 0, "ignore_eos": True})
        events = stream.events()
        next(events)
        down = start(c, "local", "down")
        last = None
        for last in events:
            pass
        assert last is None or "error" in last, last
        assert down.wait(30 * SCALE) == 0, down.stderr.read()
        assert "signal=" in open(os.path.join(c.folder, "state", "coordinator", "log")).read()



@test
def a_box_is_measured_without_a_cluster():
    def bench(*args):
        done = subprocess.run([os.path.join(BUILD, "hpctl"), "bench", *args], capture_output=True, text=True, timeout=120 * SCALE)
        return done.returncode, done.stdout, done.stderr

    rc, out, said = bench(DEMO, "--prompt", "40", "--answer", "5", "--batch", "1,3", "--depth", "20", "--repeat", "2", "--threads", "1", "-o", "json")
    assert rc == 0, said
    r = json.loads(out)
    assert [(x["test"], x["tokens"], x["batch"], x["depth"]) for x in r["rows"]] == [("prompt", 40, 1, 20), ("answer", 5, 1, 20), ("answer", 5, 3, 20)], r
    assert all(0 < x["least"] <= x["tokens_per_s"] <= x["most"] for x in r["rows"]) and "1 thread" in r["device"] and r["bytes"] > 1 << 20, r
    rc, out, said = bench(DEMO, "--prompt", "0", "--answer", "3", "--repeat", "1", "--compute", "f32", "--kv", "q8_0")
    assert rc == 0 and "answer" in out and "prompt" not in out.split("\n", 2)[2], (out, said)
    for args, code, says in (((DEMO, "--prompt", "5000"), 1, "context of"), ((DEMO, "--batch", "1,99"), 2, "--batch"), ((DEMO, "--prompt", "0", "--answer", "0"), 2, "nothing"), (("demo",), 4, "`hpctl load` measures a deployment"), (("/nowhere.gguf",), 4, "/nowhere.gguf")):
        rc, out, said = bench(*args)
        assert rc == code and says in said, (args, rc, said)


main()
