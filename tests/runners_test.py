"""What runs the tests, tests/run and .ci/run, ends all that it began when it is ended itself. Compilers and tests are stand-ins that would go on."""
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from tap import main, test

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LONG = "#!/bin/sh\nsleep 1000\n"


def left_of(session):
    """Processes of a session, zombies apart: names by numbers."""
    listed = subprocess.run(["ps", "-e", "-o", "sid=,pid=,stat=,comm="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()]
    return {int(pid): name for sid, pid, state, name in rows if int(sid) == session and state[0] != "Z"}


def await_(what, holds):
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def ends_all(number, script, stand_ins, sleepers, alone):
    """Ends the script by a signal, alone or with all of its group as a terminal does, once so many sleep for it: nothing is left."""
    with tempfile.TemporaryDirectory() as folder:
        for path in (".ci/run", "tests/run", "tools/end_children"):
            os.makedirs(os.path.join(folder, os.path.dirname(path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), os.path.join(folder, path))
        for path, text in stand_ins.items():
            os.makedirs(os.path.join(folder, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(folder, path), "w") as file:
                file.write(text)
            os.chmod(os.path.join(folder, path), 0o755)
        env = dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}", TMPDIR=folder, PYTHON=sys.executable, BUILD=f"{folder}/build", JOBS="2")
        run = subprocess.Popen([os.path.join(folder, script), *(["proc"] if script == "tests/run" else [])], env=env, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        try:
            await_("it works", lambda: list(left_of(run.pid).values()).count("sleep") >= sleepers)
            os.kill(run.pid, number) if alone else os.killpg(run.pid, number)
            run.wait(30)
            await_(f"what {script} leaves", lambda: not left_of(run.pid))
            assert number == signal.SIGKILL or not glob.glob(os.path.join(folder, "tmp.*")), os.listdir(folder)
        finally:
            for pid in left_of(run.pid):
                os.kill(pid, signal.SIGKILL)


RUNNING = {"tests/proc/one_test.py": "# Waits: long\nimport subprocess\nsubprocess.run(['sleep', '1000'])\n", "tests/proc/two_test.py": "import subprocess\nsubprocess.run(['sleep', '1000'])\n"}
BUILDING = {"tools/deps": "#!/bin/sh\n", "tools/lint": LONG, "bin/make": LONG}
BUILT = dict(BUILDING, **{"bin/make": "#!/bin/sh\ncase \"$*\" in *sanitized*) exit 0 ;; esac\nsleep 1000\n"})


@test
def tests_that_are_interrupted_end():
    ends_all(signal.SIGINT, "tests/run", RUNNING, 2, alone=False)


@test
def tests_end_with_what_ran_them():
    ends_all(signal.SIGTERM, "tests/run", RUNNING, 2, alone=True)


@test
def builds_and_looks_at_sources_end_with_the_run_that_is_interrupted():
    ends_all(signal.SIGINT, ".ci/run", BUILDING, 3, alone=False)


@test
def what_waits_for_the_last_tests_ends_with_the_run():
    ends_all(signal.SIGTERM, ".ci/run", BUILT, 3, alone=True)


@test
def what_waits_for_the_last_tests_ends_also_where_the_run_could_say_nothing():
    ends_all(signal.SIGKILL, ".ci/run", dict(BUILT, **{"tools/lint": "#!/bin/sh\n", "bin/make": "#!/bin/sh\ncase \"$*\" in *sanitized*) exit 0 ;; esac\nsleep 3\n"}), 2, alone=True)


main()
