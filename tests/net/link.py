"""A cable between two network namespaces: link.py SPACE DEVICE SPACE DEVICE. Two tap devices whose frames this program carries; what is lost, the kernels' own TCP sends again.

Reads lines `LOSS DELAY_S [LOSS_BACK]` (chance that a frame is lost, and how much later it comes, each way; LOSS_BACK of those from the second device); says `up` when the devices are there, and after each line `N LOST` of the frames before it."""
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0002, 0x1000, 0x40000000


def tap(space, device):
    with open(f"/run/netns/{space}") as f:
        assert ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TAP | IFF_NO_PI))
    return fd


def carry(ends):
    losses, delay, chance = [0.0, 0.0], 0.0, random.Random(1)
    waiting, order, seen, lost, text = [], 0, 0, 0, b""
    while True:
        left = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        ready = select.select([0, *ends], [], [], left)[0]
        for fd in ready:
            if fd == 0:
                more = os.read(0, 4096)
                if not more:
                    return
                text += more
                while b"\n" in text:
                    line, text = text.split(b"\n", 1)
                    there, delay, *back = map(float, line.split())
                    losses = [there, back[0] if back else there]
                    print(seen, lost, flush=True)
                    seen = lost = 0
                continue
            frame = os.read(fd, 65536)
            seen, order = seen + 1, order + 1
            if chance.random() < losses[ends.index(fd)]:
                lost += 1
            else:
                heapq.heappush(waiting, (time.monotonic() + delay, order, ends[1 - ends.index(fd)], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            at, number, to, frame = heapq.heappop(waiting)
            try:
                os.write(to, frame)
            except OSError:  # the device is down, or full: a cable loses that
                lost += 1


if __name__ == "__main__":
    devices = [tap(*sys.argv[1:3]), tap(*sys.argv[3:5])]
    print("up", flush=True)
    carry(devices)
