"""What a decode step costs beside its computing, on the middle one of three agents. bench/decode_calls.py prints the figures."""
import os
import sys

from cluster import ROOT
from tap import main, skip, test

sys.path.insert(0, os.path.join(ROOT, "bench"))
import decode_calls  # noqa: E402

TOKENS = 300
SLEEPS, CALLS = 2.25, 12  # two threads wake for a frame; now and then one of them waits for a lock, or is late


def check(kind):
    """What goes on in any case is taken off; strace slows what it counts, and the signs of life go on by the clock."""
    f = decode_calls.measure(TOKENS, data=kind)
    sleeps = sum(f["sleeps"].values()) - f["idle_sleeps"]
    assert sleeps <= SLEEPS, (kind, sleeps, f)
    if f["calls"] is None:
        skip(f"{sleeps:.2f} sleeps a token over {kind}; system calls not counted: no strace that may trace here")
    calls = sum(f["calls"].values()) - f["idle_calls"]
    assert calls <= CALLS, (kind, calls, f)


@test
def a_decode_step_over_tcp_wakes_two_threads_of_a_middle_stage_and_makes_twelve_system_calls_at_most():
    check("tcp")


@test
def a_decode_step_over_ucx_wakes_two_threads_of_a_middle_stage_and_makes_twelve_system_calls_at_most():
    check("ucx")


main()
