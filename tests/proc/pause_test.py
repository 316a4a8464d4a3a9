"""A coordinator that stands still for a while: nobody dies of it."""
# Waits: while a coordinator stands still.
import os
import signal
import threading
import time

from cluster import SCALE, Cluster, DEMO
from resuming import Reader
from tap import main, test

PROMPT = {"model": "demo", "messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0, "ignore_eos": True, "max_tokens": 400}
STORY = {"model": "demo", "prompt": "Once upon a time", "temperature": 0, "ignore_eos": True, "max_tokens": 400}


def text_of(event):
    return event["choices"][0]["delta"].get("content", "") if event and event.get("choices") else ""


def generation(c):
    return c.hpctl("describe", "demo")["generation"]


def pause(c, seconds):
    pid = c.kill("coordinator", signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def stream_through(c, whole, seconds):
    stream = c.stream("/v1/chat/completions", PROMPT, timeout=60)
    assert stream.status == 200, stream.reply.read()
    events = stream.events()
    got = "".join(text_of(next(events)) for _ in range(4))
    pause(c, seconds)
    last = None
    for last in events:
        assert last is None or "error" not in last, f"after {seconds} s: {last}"
        got += text_of(last)
    stream.close()
    assert last is None, f"after {seconds} s the stream broke off"
    assert got == whole, f"after {seconds} s: {got[-80:]!r}"


@test
def a_stopped_coordinator_ends_no_stream_and_plans_nothing_anew():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32")
        whole = c.answer("demo", PROMPT["messages"], ignore_eos=True, max_tokens=400)
        before = generation(c)
        story = c.request("POST", "/v1/completions", STORY)[1]["choices"][0]["text"]
        for seconds in (3, 10):
            keyed = Reader(c.port, STORY, f"key-{seconds}")  # its stages know of it, and tell of it when they join once more
            stream_through(c, whole, seconds)
            keyed.join(10 * SCALE)
            assert not keyed.is_alive() and keyed.failure is None and keyed.text == story and keyed.connections == 1, (seconds, keyed.failure, keyed.text[-60:])
            time.sleep(3 * SCALE)
            assert generation(c) == before, f"after {seconds} s: generation {generation(c)}, was {before}"
            assert {m["name"]: m["state"] for m in c.hpctl("node", "ls")} == {"a0": "ready", "a1": "ready"}


main()
