"""Faults that are put into a copy of the sources on purpose, one at a time; for mutations.py and cuda_mutations.py."""
import os
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def misplaced(faults):
    """Faults whose place is not in the sources, or not only once: (what, how often, path)."""
    def times(path, old):
        with open(os.path.join(ROOT, path)) as f:
            return f.read().count(old)
    return [(what, n, path) for what, path, old, _ in faults if (n := times(path, old)) != 1]


def build(folder, targets):
    return subprocess.run(["make", "-s", "-j2", *targets], cwd=folder, capture_output=True, text=True)


def run(faults, name, targets, found_by, compiler_may_find):
    """0 where each fault is found: `found_by` says in a copy of the tree by what, None: by nothing."""
    folder, missed = os.path.join(ROOT, "build", name), []
    assert not misplaced(faults), misplaced(faults)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    try:
        subprocess.run(["sh", "-c", 'git ls-files -z | xargs -0 cp --parents -t "$0"', folder], cwd=ROOT, check=True)
        done = build(folder, targets)
        assert done.returncode == 0, done.stderr[-2000:]
        assert not found_by(folder), "it fails without any fault"
        for what, path, old, new in faults:
            path = os.path.join(folder, path)
            with open(path) as f:
                text = f.read()
            with open(path, "w") as f:
                f.write(text.replace(old, new))
            done = build(folder, targets)
            by = found_by(folder) if done.returncode == 0 else "the compiler" if compiler_may_find else None
            if done.returncode != 0 and not compiler_may_find:
                print(f"# {what}: it does not compile, which finds nothing\n{done.stderr[-2000:]}")
            print(f"{'missed' if by is None else 'found'}: {what}{f' ({by})' if by else ''}", flush=True)
            if by is None:
                missed.append(what)
            with open(path, "w") as f:
                f.write(text)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(faults) - len(missed)} of {len(faults)} found")
    return 1 if missed else 0
