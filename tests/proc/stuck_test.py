"""Nothing waits for ever: small pools, uploads beside decode, floods of cancelled requests."""
# Alone: who is answered first is a matter of time.
import json
import os
import signal
import socket
import threading
import time

from cluster import SCALE, Cluster, DEMO
from tap import main, test

# All that is larger than a kilobyte asks for room in the pool.
SMALL = {"UCX_RNDV_THRESH": "1024"}


class Small(Cluster):
    def __init__(self, pool_bytes, **options):
        super().__init__(**options)
        self.env.update(SMALL, HP_TEST_POOL=str(pool_bytes))


def prompt(n, first=5):
    return [first + i % 400 for i in range(n)]


def complete(c, n, max_tokens, timeout, model="demo", first=5):
    body = {"model": model, "prompt": prompt(n, first), "temperature": 0, "max_tokens": max_tokens, "ignore_eos": True}
    status, answer = c.request("POST", "/v1/completions", body, timeout=timeout)
    assert status == 200, (status, answer)
    return answer


def together(*calls):
    """Runs all at once; raises what any of them raised."""
    failures = []

    def guarded(call):
        try:
            call()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures


@test
def long_prompts_go_through_three_agents_whose_pools_hold_one_slice():
    with Small(300000, agents=3, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1,a2", "--slice", "256", "--compute", "f32")
        together(*[lambda i=i: complete(c, 1601, 4, 40, first=5 + i) for i in range(4)])
        complete(c, 20, 4, 20)


@test
def a_slice_larger_than_half_of_the_pool_goes_through_a_middle_stage():
    with Small(600000, agents=3, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1,a2", "--slice", "512")
        complete(c, 441, 4, 40)


@test
def decode_goes_on_while_chunks_of_models_fill_the_pool():
    with Small((4 << 20) + 512, agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1")
        going = [True]

        def decode(first):
            while going[0]:
                complete(c, 20, 200, 40, first=first)

        def upload():
            try:
                for i in range(4):
                    model = os.path.join(c.folder, f"other{i}.gguf")
                    with open(DEMO, "rb") as f, open(model, "wb") as g:
                        whole = bytearray(f.read())
                        whole[-1] ^= i + 1  # another chunk, so that it is sent
                        g.write(whole)
                    c.deploy(f"other{i}", model, "--agents", "a1", "--upload", "--compute", "f32")
            finally:
                going[0] = False

        together(upload, *[lambda i=i: decode(5 + i) for i in range(3)])


@test
def requests_that_are_opened_and_closed_while_a_stage_is_busy_do_not_silence_those_that_follow():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1")
        pid = c.kill("a1", signal.SIGSTOP)  # as if it ran a slice for as long

        def go_on():
            time.sleep(0.8)
            os.kill(pid, signal.SIGCONT)

        def flood():
            for i in range(40):
                open_and_leave(c, i)
            together(*[lambda i=i: complete(c, 20, 4, 30, first=50 + i) for i in range(3)])

        together(go_on, flood)


def open_and_leave(c, i):
    """Sends a request, and hangs up before its answer begins."""
    body = json.dumps({"model": "demo", "prompt": prompt(20, 10 + i), "max_tokens": 8, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", c.port), timeout=20 * SCALE) as k:
        k.sendall(head + body)
        time.sleep(0.008)


@test
def a_short_prompt_is_answered_before_a_long_one_that_came_first():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--slice", "64", "--compute", "f32")
        ended = []

        def ask(name, n, first, wait):
            time.sleep(wait)
            complete(c, n, 1, 60, first=first)
            ended.append(name)

        together(lambda: ask("long", 1900, 5, 0), lambda: ask("short", 7, 50, 0.05))
        assert ended == ["short", "long"], ended


@test
def a_second_deployment_answers_while_the_first_one_is_kept_busy_with_long_prompts():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--slice", "128", "--compute", "f32", "--prefix-cache", "off")
        c.deploy("second", DEMO, "--agents", "a0,a1", "--compute", "f32")
        going, longs = [True], []

        def busy(first):
            while going[0]:
                complete(c, 1900, 1, 60, first=first)
                longs.append(1)

        def second():
            try:
                complete(c, 20, 100, 60, model="second")
            finally:
                going[0] = False

        together(second, *[lambda i=i: busy(5 + i) for i in range(4)])
        # A hundred steps over two agents, each of which waits for at most a slice or two: not for whole prompts.
        assert len(longs) < 60, len(longs)


@test
def two_deployments_that_are_always_busy_share_the_device_by_their_weights():
    with Cluster(agents=1, cores=1) as c:
        for name, weight in (("heavy", "3"), ("light", "1")):
            c.deploy(name, DEMO, "--agents", "a0", "--slice", "64", "--prefix-cache", "off", "--weight", weight)
            assert c.hpctl("describe", name)["weight"] == float(weight)
        going = [True]

        def busy(name):
            while going[0]:
                complete(c, 300, 1, 60, model=name)

        def seconds():
            return [sum(s.get("busy_s", 0) for s in c.hpctl("describe", name)["stages"]) for name in ("heavy", "light")]

        def measure():
            try:
                c.wait("both run", lambda: all(s > 0.2 for s in seconds()))
                before = seconds()
                c.wait("they had some seconds", lambda: sum(seconds()) > sum(before) + 3, 60)
                heavy, light = (b - a for a, b in zip(before, seconds()))
                print(f"# {heavy:.2f} s of weight 3, {light:.2f} s of weight 1")
                assert 2 < heavy / light < 4.5, (heavy, light)
            finally:
                going[0] = False

        together(measure, *[lambda n=n: busy(n) for n in ("heavy", "light") for _ in range(4)])


main()
