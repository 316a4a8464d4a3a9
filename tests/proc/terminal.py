"""hpctl on a terminal of its own."""
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

from cluster import BUILD, SCALE

HPCTL = os.path.join(BUILD, "hpctl")


class Terminal:
    """What it shows comes in as it is asked for; `until` waits for a pattern and takes what came before."""

    def __init__(self, env, *args, columns=0):
        self.pid, self.fd = pty.fork()
        if self.pid == 0 and columns:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
        if self.pid == 0:
            os.execve(HPCTL, [HPCTL, *args], dict(env, TERM="xterm", LINES="40", COLUMNS=str(columns or 160)))
        self.seen = ""

    def read(self):
        """Without what asks for marks around what is pasted, which nobody sees."""
        self.seen = re.sub(r"\x1b\[\?2004[hl]", "", self.seen + os.read(self.fd, 4096).decode(errors="replace"))

    def until(self, pattern, seconds=30):
        """What was shown up to there."""
        until = time.monotonic() + seconds * SCALE
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < until, (pattern, self.seen[-400:])
            if select.select([self.fd], [], [], 0.2)[0]:
                self.read()
        shown, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return shown

    def shown(self):
        """What has been shown by now."""
        while select.select([self.fd], [], [], 0)[0]:
            self.read()
        return self.seen

    def say(self, text, pattern=r"\n> $"):
        os.write(self.fd, text.encode())
        return self.until(pattern)


def rows_of(shown, columns):
    """What stands on a terminal of so many columns that was told this."""
    rows, at = [""], 0
    for piece in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|\r|\n|.", shown, re.S):
        if piece == "\r":
            at = 0
        elif piece == "\n":
            rows.append(" " * at)
        elif piece.endswith("G") and piece[0] == "\x1b":
            at = int(piece[2:-1]) - 1
        elif piece == "\x1b[K":
            rows[-1] = rows[-1][:at]
        elif piece[0] != "\x1b":
            if at == columns:
                rows.append("")
                at = 0
            rows[-1] = rows[-1].ljust(at)[:at] + piece + rows[-1][at + 1:]
            at += 1
    return [row.rstrip() for row in rows]
