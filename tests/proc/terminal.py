"""hpctl on a terminal of its own."""
import os
import pty
import re
import select
import time

from cluster import BUILD, SCALE

HPCTL = os.path.join(BUILD, "hpctl")


class Terminal:
    """What it shows comes in as it is asked for; `until` waits for a pattern and takes what came before."""

    def __init__(self, env, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(HPCTL, [HPCTL, *args], dict(env, TERM="xterm", LINES="40", COLUMNS="160"))
        self.seen = ""

    def until(self, pattern, seconds=30):
        """What was shown up to there."""
        until = time.monotonic() + seconds * SCALE
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < until, (pattern, self.seen[-400:])
            if select.select([self.fd], [], [], 0.2)[0]:
                self.seen += os.read(self.fd, 4096).decode(errors="replace")
        shown, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return shown

    def shown(self):
        """What has been shown by now."""
        while select.select([self.fd], [], [], 0)[0]:
            self.seen += os.read(self.fd, 4096).decode(errors="replace")
        return self.seen

    def say(self, text, pattern=r"\n> $"):
        os.write(self.fd, text.encode())
        return self.until(pattern)
