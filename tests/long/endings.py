"""Connections that end while large frames cross them: senders that shut their own, receivers and senders that are killed, receivers that are stopped for a while. Every process
that was not killed lives, every frame comes to an end, and no buffer stays with a receiver.

    python3 tests/long/endings.py SECONDS [SEED] [KIND]

The rounds run in a process of their own, which is watched: whatever ends it, the last line says seed, phase, seconds and exit status."""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.join(os.environ.get("HP_BUILD", "build"), "bench", "data")
SECONDS = float(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
KIND = sys.argv[3] if len(sys.argv) > 3 else "ucx"
chance = random.Random(SEED)
PLACE = (KIND, "127.0.0.1", "lo")


class Sink:
    def __init__(self):
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([PROGRAM, "sink", *PLACE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, text=True,
                                        env=dict(os.environ, UCX_LOG_FILE="/dev/stderr"))
        self.address = self.process.stdout.readline().split()[1]

    def sender(self, role, key, seconds):
        return subprocess.Popen([PROGRAM, role, *PLACE, self.address, str(key), str(seconds)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def buffers_bytes(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            return int(self.process.stdout.readline().split()[3])
        except (OSError, IndexError):
            self.process.wait()
            return 0

    def kill(self):
        self.process.kill()
        self.process.wait()


def ended_well(sender, what):
    try:
        said = sender.communicate(timeout=40)[1]
    except subprocess.TimeoutExpired:
        sender.kill()
        said = "it did not end within 40 s"
        sender.returncode = None
    if sender.returncode == 0:
        return True
    print(f"  {what}: {sender.returncode}: {said[-2000:]}", flush=True)
    return False


def empties(sink):
    until = time.monotonic() + 10
    while sink.buffers_bytes() and time.monotonic() < until:
        time.sleep(0.1)
    return sink.buffers_bytes() == 0


def senders_cut(sink):
    senders = [sink.sender("cut", key, 0.1 + 0.3 * chance.random()) for key in range(1, 4)]
    return all([ended_well(s, "a sender that shut its connection") for s in senders])


def receiver_killed(_):
    sink = Sink()
    senders = [sink.sender(chance.choice(("cut", "flood")), key, 5) for key in range(1, 4)]
    time.sleep(0.2 + 0.3 * chance.random())
    sink.kill()
    return all([ended_well(s, "a sender whose receiver was killed") for s in senders])


def senders_killed(sink):
    senders = [sink.sender("flood", key, 5) for key in range(1, 4)]
    time.sleep(0.2 + 0.3 * chance.random())
    for s in senders:
        s.kill()
        s.communicate()
    return True


def receiver_stopped(sink):
    senders = [sink.sender("cut", key, 0.3 + 0.2 * chance.random()) for key in range(1, 3)]
    time.sleep(0.2)
    os.kill(sink.process.pid, signal.SIGSTOP)
    time.sleep(0.5 * chance.random())
    os.kill(sink.process.pid, signal.SIGCONT)
    return all([ended_well(s, "a sender whose receiver was stopped") for s in senders])


ENDINGS = (senders_cut, senders_cut, receiver_killed, senders_killed, receiver_stopped)
PHASE = "phase: "


def phase(name):
    """Heard by the watcher, who says it where the rounds end early."""
    print(PHASE + name, flush=True)


def rounds():
    phase("start")
    until, n, failed, sink = time.monotonic() + SECONDS, 0, 0, Sink()
    while time.monotonic() < until:
        ending = ENDINGS[n % len(ENDINGS)]
        phase(f"round {n}, {ending.__name__}")
        good = ending(sink)
        phase(f"round {n}, buffers after {ending.__name__}")
        empty = empties(sink)
        if sink.process.poll() is not None:
            sink.said.seek(0)
            print(f"  {ending.__name__}: the receiver ended with {sink.process.returncode}: {sink.said.read()[-3000:]}", flush=True)
            good, sink = False, Sink()
        elif not empty:
            print(f"  {ending.__name__}: {sink.buffers_bytes()} bytes stay with the receiver", flush=True)
            sink.kill()
            good, sink = False, Sink()
        failed += not good
        n += 1
    sink.kill()
    phase("end")
    print(f"{KIND}: {n} endings in {SECONDS:.0f} s from seed {SEED}, {failed} of them bad", flush=True)
    return 1 if failed else 0


def status_words(status):
    return f"signal {-status} ({signal.Signals(-status).name})" if status < 0 else f"exit status {status}"


def watch():
    """Runs the rounds and passes on what they say; an end before their last line is told whatever brought it, a signal to this process included."""
    began, now_in, told = time.monotonic(), "none", False
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), str(SECONDS), str(SEED), KIND, "rounds"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             start_new_session=True)

    def interrupted(number, _):
        os.killpg(child.pid, signal.SIGKILL)
        print(f"{KIND}: ENDED EARLY by {signal.Signals(number).name} in {now_in}, seed {SEED}, after {time.monotonic() - began:.0f} of {SECONDS:.0f} s", flush=True)
        os._exit(3)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, interrupted)
    for line in child.stdout:
        if line.startswith(PHASE):
            now_in = line[len(PHASE):].strip()
        else:
            print(line, end="", flush=True)
            told = told or " endings in " in line
    status = child.wait()
    if told and status in (0, 1):
        return status
    print(f"{KIND}: ENDED EARLY in phase {now_in}, seed {SEED}, after {time.monotonic() - began:.0f} of {SECONDS:.0f} s: {status_words(status)}", flush=True)
    return 3


sys.exit(rounds() if sys.argv[4:] == ["rounds"] else watch())
