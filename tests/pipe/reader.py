"""Reads a channel epoch by epoch, each in the given manner, and prints a line of JSON for each.

usage: reader.py CHANNEL MANNER...

all              as SageMaker's own example does: 16 MiB buffers until the end
wait             opens without blocking, and selects before every read
single:N         N bytes one by one, then as `all`
leave:N          closes after N bytes
sleep:N:SECONDS  a pause after N bytes, then as `all`
rate:N           N bytes a second, in pieces of at most 1 MiB
splice           moves the pages on into a pipe of its own before it reads them
"""

import hashlib
import json
import os
import select
import sys
import time

BUFFER = bytearray(16 * 1024 * 1024)


class Epoch:
    """What was read of one epoch."""

    def __init__(self):
        self.bytes = 0
        self.hash = hashlib.sha256()

    def take(self, data):
        self.bytes += len(data)
        self.hash.update(data)
        return len(data)

    def rest(self, stream):
        """Reads to the end."""
        while count := stream.readinto(BUFFER):
            self.take(memoryview(BUFFER)[:count])

    def some(self, stream, count, step):
        """Reads `count` bytes, at most `step` at a time."""
        while count > 0:
            data = stream.read(min(count, step))
            if not data:
                return
            count -= self.take(data)


    def paced(self, stream, rate):
        """Reads to the end at `rate` bytes a second; what was late is not caught up."""
        piece = memoryview(BUFFER)[: 1 << 20]
        due = time.monotonic()
        while count := stream.readinto(piece):
            self.take(piece[:count])
            due = max(due + count / rate, time.monotonic())
            time.sleep(max(0, due - time.monotonic()))


def wait_until(condition, seconds):
    """Seconds until it was so; null when it never was."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            return None
        time.sleep(0.002)
    return time.monotonic() - begun


def report(**words):
    print(json.dumps(words), flush=True)


def wait_and_read(descriptor, epoch):
    while True:
        ready, _, _ = select.select([descriptor], [], [], 30)
        if not ready:
            sys.exit("nothing came for 30 s")
        try:
            data = os.read(descriptor, 100_000)
        except BlockingIOError:
            continue
        if not data:
            return
        epoch.take(data)


def splice_on(descriptor, epoch):
    reader, writer = os.pipe()
    held = 0
    while count := os.splice(descriptor, writer, 1 << 16):
        held = count
        # The pages lie in the second pipe for a while, as they would in front of a slow program.
        time.sleep(0.0005)
        while held:
            held -= epoch.take(os.read(reader, held))
    os.close(reader)
    os.close(writer)


def read(path, number, manner, following):
    name, *numbers = manner.split(":")
    epoch = Epoch()
    if name == "wait":
        stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
    else:
        stream = open(path, "rb", buffering=0)
    report(opened=number)
    appeared = wait_until(lambda: os.path.exists(following), 10) if following else None
    if name == "wait":
        wait_and_read(stream.fileno(), epoch)
    elif name == "single":
        epoch.some(stream, int(numbers[0]), 1)
        epoch.rest(stream)
    elif name == "leave":
        epoch.some(stream, int(numbers[0]), 1 << 16)
    elif name == "sleep":
        epoch.some(stream, int(numbers[0]), 1 << 16)
        report(asleep=number)
        time.sleep(float(numbers[1]))
        epoch.rest(stream)
    elif name == "rate":
        epoch.paced(stream, int(numbers[0]))
    elif name == "splice":
        splice_on(stream.fileno(), epoch)
    else:
        epoch.rest(stream)
    stream.close()
    gone = wait_until(lambda: not os.path.exists(path), 10)
    report(
        epoch=number,
        bytes=epoch.bytes,
        sha256=epoch.hash.hexdigest(),
        appeared=appeared,
        gone=gone,
    )


def main():
    channel, *manners = sys.argv[1:]
    for number, manner in enumerate(manners):
        path = f"{channel}_{number}"
        following = f"{channel}_{number + 1}" if number + 1 < len(manners) else None
        if wait_until(lambda: os.path.exists(path), 30) is None:
            sys.exit(f"{path} never appeared")
        read(path, number, manner, following)


main()
