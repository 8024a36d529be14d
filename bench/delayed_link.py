#!/usr/bin/env python3
"""A link with a rate and a delay between two network namespaces: delayed_link.py A B RATE_MBIT DELAY_MS

Needs root and /dev/net/tun, but no netem, which many kernels lack. Makes the point-to-point device link0 in both namespaces, which
must exist, with the addresses 10.231.8.1 and 10.231.8.2. Then it carries packets until it is ended: each leaves when the one
before has left at RATE_MBIT, and arrives DELAY_MS later. Prints "ready" once packets pass.
"""

import collections
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

NAME = "link0"
ADDRESSES = ("10.231.8.1", "10.231.8.2")
MTU = 20000  # few large packets: this program handles each one
MOST_BYTES = 64 << 20  # that wait in one direction; later ones are dropped

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000


def open_device(namespace):
    """A TUN device in a namespace, which this process enters."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}", "rb") as there:
        if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns: {namespace}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", NAME.encode(), IFF_TUN | IFF_NO_PI))
    return device


def set_up(address, peer):
    """In the namespace that this process is in."""
    subprocess.run(["ip", "addr", "add", address, "peer", peer, "dev", NAME], check=True)
    subprocess.run(["ip", "link", "set", NAME, "mtu", str(MTU), "txqueuelen", "2000", "up"], check=True)


class Direction:
    """From one device to the other."""

    def __init__(self, source, target, bytes_per_second, delay):
        self.source, self.target = source, target
        self.bytes_per_second, self.delay = bytes_per_second, delay
        self.sent_at = 0.0  # when the last packet has left
        self.waiting = collections.deque()
        self.num_bytes = 0

    def take(self, now):
        while True:
            try:
                packet = os.read(self.source, 1 << 16)
            except BlockingIOError:
                return
            if self.num_bytes + len(packet) > MOST_BYTES:
                continue
            self.sent_at = max(self.sent_at, now) + len(packet) / self.bytes_per_second
            self.waiting.append((self.sent_at + self.delay, packet))
            self.num_bytes += len(packet)

    def deliver(self, now):
        while self.waiting and self.waiting[0][0] <= now:
            _, packet = self.waiting.popleft()
            self.num_bytes -= len(packet)
            try:
                os.write(self.target, packet)
            except BlockingIOError:
                pass  # the other end is full: lost, as on a network

    def due(self):
        return self.waiting[0][0] if self.waiting else float("inf")


def carry(a, b, bytes_per_second, delay):
    directions = {a: Direction(a, b, bytes_per_second, delay), b: Direction(b, a, bytes_per_second, delay)}
    poll = select.poll()
    for device in directions:
        poll.register(device, select.POLLIN)
    while True:
        next_due = min(one.due() for one in directions.values())
        wait_ms = min(1e3, max(0.0, 1e3 * (next_due - time.monotonic())))
        for device, _ in poll.poll(wait_ms):
            directions[device].take(time.monotonic())
        for one in directions.values():
            one.deliver(time.monotonic())


def main():
    names, rate_mbit, delay_ms = sys.argv[1:3], float(sys.argv[3]), float(sys.argv[4])
    devices = []
    for name, address, peer in zip(names, ADDRESSES, reversed(ADDRESSES)):
        devices.append(open_device(name))
        set_up(address, peer)
    # A network does not wait for the cores of the hosts.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    print("ready", flush=True)
    carry(*devices, rate_mbit * 1e6 / 8, delay_ms / 1e3)


if __name__ == "__main__":
    main()
