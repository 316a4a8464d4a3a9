#!/usr/bin/env python3
"""Decode on a box whose cores others use too: two processes spin beside it on the same cores.

    bench/busy_decode.py [--cores 2] [--tokens 64] [--repeat 5] [--spinning 2] [--model FILE]

A thread that shares its core with one spinning process has a fair share of half of it. The ratio is what a token takes beside them over what it takes alone, over what the fair share makes
of it: 1 is fair, and 2 is allowed. Alone and beside by turns; medians. On a box that is busy already the figure is smaller than on a quiet one."""
import argparse
import multiprocessing
import os
import statistics

import peers


def spin():
    while True:
        pass


def seconds(ours, order, cores, spinning):
    """Of the order, beside so many processes that spin on these cores."""
    beside = [multiprocessing.Process(target=spin, daemon=True) for _ in range(spinning)]
    for i, process in enumerate(beside):
        process.start()
        os.sched_setaffinity(process.pid, {cores[i % len(cores)]})
    try:
        return ours.measure(order)
    finally:
        for process in beside:
            process.terminate()
            process.join()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--cores", type=int, default=2)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--spinning", type=int, default=2)
    p.add_argument("--small", action="store_true", help="a model of two narrow blocks: to try the script")
    p.add_argument("--model")
    o = p.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:o.cores]
    model = o.model or peers.model_file("q8_0", o.small)
    ours = peers.Process([peers.OURS, model, str(len(cores)), str(peers.CONTEXT)], set(cores))
    order = f"decode {o.tokens}"
    ours.measure(order)
    pairs = [(seconds(ours, order, cores, 0), seconds(ours, order, cores, o.spinning)) for _ in range(o.repeat)]
    ours.close()
    fair = (len(cores) + o.spinning) / len(cores)
    ratios = sorted(beside / alone / fair for alone, beside in pairs)
    print(f"{os.path.basename(model)}, {len(cores)} cores, {o.spinning} spinning: {1e3 * statistics.median(a for a, _ in pairs) / o.tokens:.2f} ms a token alone, "
          f"{1e3 * statistics.median(b for _, b in pairs) / o.tokens:.2f} ms beside; {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) of the fair share's, "
          f"at most 2; load {os.getloadavg()[0]:.1f}")
    return 0 if statistics.median(ratios) <= 2 else 1


if __name__ == "__main__":
    raise SystemExit(main())
