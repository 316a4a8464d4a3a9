"""Agents with GPUs for tests: the stand-in for CUDA (tests/cuda_on_cpu) beside a cluster of CPUs."""
import contextlib
import os
import subprocess

from cluster import BUILD, Cluster

STANDIN = os.path.join(BUILD, "tests", "cuda_on_cpu", "libhp-cuda.so")


def start_agent(c, name, *args, **env):
    folder = os.path.join(c.folder, "extra", name)
    os.makedirs(folder, exist_ok=True)
    token, control = c.hpctl("node", "token", "create")["token"], c.hpctl("context", "ls")[0]["control"]
    return subprocess.Popen([os.path.join(BUILD, "hp-agent"), "--join", control, "--token", token, "--name", name, "--dir", folder, "--network", "lo", "--memory", "1GiB", *args],
                            env={**os.environ, "HP_CUDA_PLUGIN": STANDIN, **env}, stdout=subprocess.DEVNULL, stderr=open(os.path.join(folder, "log"), "w"))


def said(c, name):
    with open(os.path.join(c.folder, "extra", name, "log")) as f:
        return f.read()


@contextlib.contextmanager
def gpu_beside(*args, agents=1, **env):
    with Cluster(agents=agents, cores=1) as c:
        agent = start_agent(c, "gpu", *args, **env)
        try:
            c.wait("the agent with a GPU is ready", lambda: c.member("gpu") == "ready")
            yield c, agent
        finally:
            agent.kill()
            agent.wait()
