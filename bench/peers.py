#!/usr/bin/env python3
"""This engine beside llama.cpp's, where that is installed, on one core and on two: prefill of 512 and 2048 tokens, and decode, interleaved.

    bench/peers.py [--formats q8_0,q4_k_m,bf16,f16,experts] [--cores 1,2] [--prefill 512,2048] [--decode 64] [--repeat 3] [--small] [--model FILE]

The peer is `llama-bench` of PATH, else the Python package `llama-cpp-python` of $HP_PEER_PYTHON, python3 of PATH or this interpreter. Without either this engine's figures
are printed alone; nothing is downloaded. The models have random weights and are made once ($BENCH_DIR, default /tmp): LLaMA of 1.1 billion parameters (22 blocks, width 2048,
32 heads, 4 for keys and values, MLP 5632, vocabulary 32000) in each format, and a mixture of 8 experts, 2 of them taken, of 0.6 billion (Q4_K_M).
--model measures a file of one's own instead, and HP_BENCH_KERNELS=avx2 (avx_vnni) this engine as on a CPU with AVX2 alone (with AVX-VNNI). Every figure stands beside what this machine gave in the same run: prefill as part of the cores' peak of multiply-adds, decode
as part of what they read from memory, and beside the load when it was taken. llama-bench warms up before each of its figures. Medians; a ratio is the median of the rounds' ratios, above 1 where this engine is faster."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
OURS = os.path.join(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")), "bench", "peers")
CONTEXT = 2048 + 64
MIXTURE = ["--blocks", "12", "--width", "1024", "--heads", "16", "--kv-heads", "4", "--mlp", "1792", "--experts", "8", "--experts-used", "2"]
SMALL = ["--blocks", "2", "--width", "512", "--heads", "8", "--kv-heads", "2", "--mlp", "1536", "--vocabulary", "4000"]
FORMATS = {"q8_0": ["--type", "q8_0"], "q4_k_m": ["--type", "q4_k_m"], "bf16": ["--type", "bf16"], "f16": ["--type", "f16"],
           "experts": ["--type", "q4_k_m", *MIXTURE]}


def on_cores(cores):
    return lambda: os.sched_setaffinity(0, cores)


class Process:
    """A program that speaks as bench/peers.c does: facts in one line, then seconds for each order."""

    def __init__(self, command, cores):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=on_cores(cores))
        self.facts = json.loads(self.line())

    def line(self):
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(map(str, self.child.args))[:100]} ended with {self.child.wait()}")
        return line

    def measure(self, order):
        self.child.stdin.write(order + "\n")
        self.child.stdin.flush()
        return float(self.line())

    def close(self):
        self.child.stdin.close()
        self.child.stdout.close()
        self.child.wait()


class LlamaBench:
    """The program of that name, once for each order; its `version` is known when it has measured."""
    version = None

    def __init__(self, program, model, cores):
        self.command, self.cores = [program, "-m", model, "-t", str(len(cores)), "-r", "1", "-o", "json"], cores

    def measure(self, order):
        kind, n = order.split()
        sizes = ["-p", n, "-n", "0"] if kind == "prefill" else ["-p", "0", "-n", n]
        done = subprocess.run(self.command + sizes, capture_output=True, text=True, preexec_fn=on_cores(self.cores))
        if done.returncode:
            raise RuntimeError(f"llama-bench: {done.stderr.strip()[-300:]}")
        said = json.loads(done.stdout)[0]
        self.version = f"llama.cpp {said['build_commit']} ({said['backends']}, {said['cpu_info']})"
        return int(n) / said["avg_ts"]

    def close(self):
        pass


def serve_llama_cpp(model, threads):
    """The other side of Process, in the interpreter that has the package."""
    import llama_cpp
    llm = llama_cpp.Llama(model_path=model, n_ctx=CONTEXT, n_threads=threads, n_threads_batch=threads, n_batch=512, n_ubatch=512, verbose=False)
    vocabulary = llm.n_vocab()
    ids = [3 + i * 7919 % (vocabulary - 3) for i in range(CONTEXT)]
    print(json.dumps({"version": llama_cpp.__version__}), flush=True)
    for line in sys.stdin:
        kind, n = line.split()
        llm.reset()
        if kind == "decode":
            llm.eval(ids[:16])
        started = time.monotonic()
        for at in range(int(n)) if kind == "decode" else ():
            llm.eval([ids[16 + at]])
        if kind == "prefill":
            llm.eval(ids[:int(n)])
        print(time.monotonic() - started, flush=True)


def peer_find():
    """(what it is called, function from model and cores to a peer) or (None, None)."""
    program = shutil.which("llama-bench")
    if program:
        return "llama-bench", lambda model, cores: LlamaBench(program, model, cores)
    for python in filter(None, (os.environ.get("HP_PEER_PYTHON"), shutil.which("python3"), sys.executable)):
        found = subprocess.run([python, "-c", "import llama_cpp; print(llama_cpp.__version__)"], capture_output=True, text=True)
        if found.returncode == 0:
            return (f"llama-cpp-python {found.stdout.strip()}",
                    lambda model, cores, python=python: Process([python, os.path.abspath(__file__), "--serve", model, str(len(cores))], cores))
    return None, None


def model_file(name, small):
    folder = os.environ.get("BENCH_DIR", "/tmp")
    path = os.path.join(folder, f"hp-bench-{'small-' if small else ''}{name}.gguf")
    if not os.path.exists(path):
        shape = FORMATS[name] + (SMALL if small else [])
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "make_random_model.py"), path, *shape], check=True)
    return path


def rounds(ours, theirs, orders, repeat):
    """{order: [(our seconds, theirs or None)]}; who goes first changes, and the first round warms up."""
    out = {order: [] for order in orders}
    for turn in range(repeat + 1):
        for order in orders:
            seconds = {}
            for one in ((ours, theirs) if turn % 2 else (theirs, ours)):
                if one:
                    seconds[one] = one.measure(order if turn else order.split()[0] + " 16")
            if turn:
                out[order].append((seconds[ours], seconds.get(theirs)))
    return out


def row_print(name, cores, order, pairs, facts, machine):
    kind, n = order.split()[0], int(order.split()[1])
    speed = n / statistics.median(a for a, _ in pairs)
    if kind == "prefill":
        flops = facts["flops_512"] + (facts["flops_2048"] - facts["flops_512"]) * (n - 512) / 1536  # all but right between: attention's part is small
        part = f"{100 * flops / n * speed / (machine['peak_flops_per_s'] * cores):3.0f} % of the {machine['peak_of']} peak" if machine["peak_flops_per_s"] else ""
    else:
        part = f"{100 * facts['bytes'] * speed / machine['read_bytes_per_s']:3.0f} % of reading ({facts['bytes'] * speed * 1e-9:.1f} GB/s)"
    peer = ""
    if pairs[0][1]:
        ratios = sorted(b / a for a, b in pairs)
        peer = f"{n / statistics.median(b for _, b in pairs):8.1f}   {statistics.median(ratios):5.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
    print(f"{name:8} {cores} core{'s' if cores > 1 else ' '} {order:13} {speed:8.1f} {peer:31} {part}; load {os.getloadavg()[0]:.1f}", flush=True)


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--formats", default=",".join(FORMATS))
    p.add_argument("--cores", default="1,2")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--prefill", default="512,2048", help="lengths of prompts; empty: none")
    p.add_argument("--decode", type=int, default=64, help="tokens; 0: none")
    p.add_argument("--model")
    p.add_argument("--small", action="store_true", help="models of two narrow blocks: to try the script")
    return p.parse_args()


def main():
    o = options()
    called, peer_of = peer_find()
    print(f"peer: {called}" if called else "no peer: neither llama-bench in PATH nor the Python package llama-cpp-python (HP_PEER_PYTHON names an interpreter that has\n"
          "it). To compare, install llama.cpp, or `pip install llama-cpp-python`. This engine alone:", flush=True)
    models = [(os.path.basename(o.model), o.model)] if o.model else [(name, model_file(name, o.small)) for name in o.formats.split(",")]
    free = sorted(os.sched_getaffinity(0))
    orders = [f"prefill {n}" for n in o.prefill.split(",") if n] + [f"decode {o.decode}"] * (o.decode > 0)
    version = None
    print(f"load {os.getloadavg()[0]:.1f}; tokens/s\n{'':24}{'':8}     ours     {'peer   ours/peer' if called else ''}")
    for cores in (int(c) for c in o.cores.split(",")):
        if cores > len(free):
            print(f"{cores} cores: this process may use {len(free)}")
            continue
        mine = set(free[:cores])
        machine = json.loads(subprocess.run([OURS, "machine", str(cores)], capture_output=True, text=True, check=True, preexec_fn=on_cores(mine)).stdout)
        for name, path in models:
            ours = Process([OURS, path, str(cores), str(CONTEXT)], mine)
            theirs = peer_of(path, mine) if peer_of else None
            for order, pairs in rounds(ours, theirs, orders, o.repeat).items():
                row_print(name, cores, order, pairs, ours.facts, machine)
            ours.close()
            if theirs:
                theirs.close()
                version = getattr(theirs, "version", None)
    if version:
        print(f"the peer says: {version}")


if len(sys.argv) > 1 and sys.argv[1] == "--serve":
    serve_llama_cpp(sys.argv[2], int(sys.argv[3]))
elif __name__ == "__main__":
    main()
