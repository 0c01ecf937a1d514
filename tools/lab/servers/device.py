"""A block device that logs what is written to it: `device.py IMAGE POINT LOG`.

It serves IMAGE as the file POINT through /dev/fuse, for a loop device on top. Every write and every
flush of the device's cache is appended to LOG before it is answered, in the order in which they
arrive. Discards are refused. Each record begins with `RECORD`: kind, offset, length; a write's
bytes follow. It ends when POINT is unmounted.

The protocol is that of fuse(4), version 7.31, as include/uapi/linux/fuse.h has it. The root of the
mount is the file itself, so no names are looked up.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
import time

RECORD = struct.Struct("<cQQ")
WRITE, FLUSH = b"w", b"f"

GETATTR, OPEN, READ, WRITE_TO, RELEASE, FSYNC, FLUSH_OF_CLOSE, INIT = 3, 14, 15, 16, 18, 20, 25, 26
FORGET, INTERRUPT, DESTROY, BATCH_FORGET = 2, 36, 38, 42
HEADER_IN, HEADER_OUT = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
PLACE = struct.Struct("<QQI")
"""Of reads and writes: handle, offset, size."""
PLACE_BYTES = 40
INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
ATTRIBUTES_OUT = struct.Struct("<QII6Q10I")
OPEN_OUT = struct.Struct("<QIi")
VERSION = (7, 31)
BIG_WRITES, MAX_PAGES = 1 << 5, 1 << 22
PIECE_BYTES = 1 << 20
PAGE_BYTES = 4096


class Device:
    """The served file and the log."""

    def __init__(self, image: str, log: str) -> None:
        self.image = os.open(image, os.O_RDWR)
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.size = os.fstat(self.image).st_size

    def attributes(self) -> bytes:
        """Of the file, which keeps its size."""
        now, second = int(time.time()), 10 ** 6
        return ATTRIBUTES_OUT.pack(
            second, 0, 0, 1, self.size, self.size // 512, now, now, now, 0, 0, 0,
            stat.S_IFREG | 0o600, 1, 0, 0, 0, PAGE_BYTES, 0)

    def answer(self, opcode: int, body: memoryview) -> bytes:
        """What the kernel gets for a request.

        Raises:
            OSError: The request is refused.
        """
        if opcode == INIT:
            return INIT_OUT.pack(*VERSION, PIECE_BYTES, BIG_WRITES | MAX_PAGES, 16, 12, PIECE_BYTES,
                                 1, PIECE_BYTES // PAGE_BYTES, 0, 0)
        if opcode == GETATTR:
            return self.attributes()
        if opcode == OPEN:
            return OPEN_OUT.pack(0, 0, 0)
        if opcode == READ:
            _, offset, size = PLACE.unpack_from(body)
            return os.pread(self.image, size, offset)
        if opcode == WRITE_TO:
            _, offset, size = PLACE.unpack_from(body)
            data = body[PLACE_BYTES:PLACE_BYTES + size]
            os.pwrite(self.image, data, offset)
            os.writev(self.log, [RECORD.pack(WRITE, offset, size), data])
            return struct.pack("<II", size, 0)
        if opcode == FSYNC:
            os.write(self.log, RECORD.pack(FLUSH, 0, 0))
            return b""
        if opcode in (RELEASE, FLUSH_OF_CLOSE, DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "not of a device")

    def serve(self, kernel: int) -> None:
        """Answers until the file is unmounted."""
        buffer = bytearray(PIECE_BYTES + PAGE_BYTES)
        view = memoryview(buffer)
        while True:
            try:
                read = os.readv(kernel, [buffer])
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                raise
            _, opcode, unique, *_ = HEADER_IN.unpack_from(buffer)
            if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            code, body = 0, b""
            try:
                body = self.answer(opcode, view[HEADER_IN.size:read])
            except OSError as error:
                code = -(error.errno or errno.EIO)
            os.writev(kernel, [HEADER_OUT.pack(HEADER_OUT.size + len(body), code, unique), body])


def main() -> None:
    """Mounts the file and serves it."""
    image, point, log = sys.argv[1:]
    device = Device(image, log)
    kernel = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={kernel},rootmode={stat.S_IFREG:o},user_id=0,group_id=0"
    mount = ctypes.CDLL(None, use_errno=True).mount
    if mount(b"device", os.fsencode(point), b"fuse", ctypes.c_ulong(0), options.encode()) != 0:
        raise SystemExit(f"mount: {os.strerror(ctypes.get_errno())}")
    device.serve(kernel)


if __name__ == "__main__":
    main()
