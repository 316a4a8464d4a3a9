"""Faults that are put into the cores on purpose, one at a time: each has to be found by the simulations, or by the unit test of sequences. Works on a copy of the sources, and says which faults nobody found.

    tests/long/mutations.py [WORD ...]      only those whose description has one of these words
"""
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUNS = os.environ.get("HP_RUNS", "100")
TESTS = ["unit/coordinator/sequences", "sim/recovery", "sim/failures", "sim/plague", "sim/rebalance", "sim/handoff", "sim/frames", "sim/growth"]

# What it is, file, what stands there, what takes its place (once).
FAULTS = [
    ("stages are not told that a sequence begins anew", "coordinator/sequence_ends.c", "    sequence_order_close(c, d, s->id, 0);\n    s->n_ids = 0;", "    s->n_ids = 0;"),
    ("what a lost agent had open is forgotten at its stages and nowhere else", "coordinator/lifecycle.c", "    sequences_lose_all(c, d, why);", ""),
    ("tokens that were told before are told again", "coordinator/sequences.c", "size_t known = (size_t)(s->n_output - t->first);", "size_t known = 0;"),
    ("a gap in the tokens is not seen", "coordinator/sequences.c", "if (t->first > s->n_output) {", "if (t->first > s->n_output + 1000) {"),
    ("any agent may say tokens", "coordinator/sequences.c", "mine = mine || d->stages[i].agent == m;", "mine = mine || m;"),
    ("the room of what ends is not given back", "coordinator/sequence.c", "    s->of->n_active--;\n    kv_account_close(&d->kv, &s->holding);", "    s->of->n_active--;"),
    ("a lost agent breaks no deployment", "coordinator/lifecycle_members.c", "else if (d->state == DEPLOYMENT_PREPARING || deployment_serves(d))", "else if (d->state == DEPLOYMENT_PREPARING)"),
    ("an agent that was restarted is believed to hold its stage", "coordinator/stage_reports.c", "ready = ready && stage_is_ready(d, s);", "ready = true;"),
    ("sequences go on over a connection that was lost", "coordinator/stage_reports.c", "        sequences_lose_all(c, d, &e);\n", ""),
    ("the next place has the number of the one before", "coordinator/stages.c", "    d->generation++;\n", ""),
    ("a silent agent is never lost", "coordinator/membership.c", "if (silent >= coord_ms(patience_ms(c, m))) {", "if (silent >= 1000 * coord_ms(patience_ms(c, m))) {"),
    ("who is lost never comes to serve again", "coordinator/lifecycle.c", "    lifecycle_move(c, d, DEPLOYMENT_BROKEN);\n    deployment_retry(c, d);\n}\n\nstatic void lifecycle_fail", "    lifecycle_move(c, d, DEPLOYMENT_BROKEN);\n}\n\nstatic void lifecycle_fail"),
    ("the random stream begins anew", "coordinator/sequence_orders.c", "m.u.sequence_open.sampled = last ? s->resumed : 0;", "m.u.sequence_open.sampled = 0;"),
]


def build(folder, tests):
    targets = [f"build/tests/{t}_test" for t in tests]
    return subprocess.run(["make", "-s", "-j2", *targets], cwd=folder, capture_output=True, text=True)


def found_by(folder):
    """The first simulation that fails, or None."""
    for t in TESTS:
        try:
            done = subprocess.run([f"build/tests/{t}_test"], cwd=folder, env=dict(os.environ, HP_RUNS=RUNS), capture_output=True, timeout=180)
        except subprocess.TimeoutExpired:
            return t + " (no end)"
        if done.returncode:
            return t
    return None


def main():
    words = sys.argv[1:]
    chosen = [f for f in FAULTS if not words or any(w in f[0] for w in words)]
    folder = os.path.join(ROOT, "build", "mutations")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    missed = []
    try:
        subprocess.run(["sh", "-c", 'git ls-files -z | xargs -0 cp --parents -t "$0"', folder], cwd=ROOT, check=True)
        done = build(folder, TESTS)
        assert done.returncode == 0, done.stderr[-2000:]
        assert not found_by(folder), "it fails without any fault"
        for what, path, old, new in chosen:
            path = os.path.join(folder, path)
            with open(path) as f:
                text = f.read()
            assert text.count(old) == 1, f"{what}: {text.count(old)} places in {path}"
            with open(path, "w") as f:
                f.write(text.replace(old, new))
            done = build(folder, TESTS)
            by = found_by(folder) if done.returncode == 0 else "the compiler"
            print(f"{'missed' if by is None else 'found'}: {what}{f' ({by})' if by else ''}", flush=True)
            if by is None:
                missed.append(what)
            with open(path, "w") as f:
                f.write(text)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} found")
    return 1 if missed else 0


sys.exit(main())
