"""The arrows of the house: which folder may include which. common <- model, planners, transport <- agent, coordinator <- hpctl."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tap import main, test

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
MAY = {
    "common": set(),
    "model": {"common"},
    "planners": {"common"},
    "transport": {"common"},
    "agent": {"common", "model", "planners", "transport"},
    "coordinator": {"common", "model", "planners", "transport"},
    "hpctl": {"common", "model", "planners", "transport", "agent", "coordinator"},
}
# hpctl reaches into the daemons' rooms only where it runs their parts in its own process.
EMBEDDING = {"hpctl/embedded.c", "hpctl/embedded.h"}


def sources():
    for room in MAY:
        for folder, _, files in os.walk(os.path.join(ROOT, room)):
            for name in files:
                if name.endswith((".c", ".h", ".cu", ".cuh")):
                    yield room, os.path.relpath(os.path.join(folder, name), ROOT)


@test
def no_room_includes_one_above_or_beside_it():
    wrong = []
    for room, path in sources():
        with open(os.path.join(ROOT, path), errors="replace") as f:
            for inc in re.findall(r'^\s*#\s*include\s*"([^"]+)"', f.read(), re.M):
                other = inc.split("/")[0]
                if other in MAY and other != room and other not in MAY[room]:
                    wrong.append(f"{path} includes {inc}")
                if room == "hpctl" and other in ("agent", "coordinator") and path not in EMBEDDING:
                    wrong.append(f"{path} includes {inc}; only hpctl/embedded.c may")
    assert not wrong, "\n".join(wrong)


@test
def every_header_compiles_alone():
    wrong = []
    for _, path in sources():
        if path.endswith(".h"):
            run = subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-I.", "-fsyntax-only", "-x", "c", path], cwd=ROOT, capture_output=True, text=True)
            if run.returncode:
                wrong.append(run.stderr[:300])
    assert not wrong, "\n".join(wrong)


main()
