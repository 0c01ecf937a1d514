"""Ctrl-C while a server does not answer, and threads that go on when the main one has ended."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from common import Answers
from conftest import Origin, require, small_objects

Serve = Callable[..., Origin]

#: A process that is still there after this time waits for the server: it has no end then.
SECONDS = 20

HEADER = json.dumps({"a": {"dtype": "U8", "shape": [1 << 20], "data_offsets": [0, 1 << 20]}})
FILE = struct.pack("<Q", len(HEADER)) + HEADER.encode() + bytes(1 << 20)

LOAD = "inrush.safetensors.load('s3://data/train/model')"
RANGES = "fsspec.filesystem('inrush').cat_ranges(['data/train/0000.bin', 'data/train/0001.bin']," \
         " 0, 5)"
WAYS = {LOAD: ("torch", "import inrush.safetensors", "GET"), RANGES: ("fsspec", "import fsspec",
                                                                    "HEAD")}


class Silent:
    """A server of `FILE` that answers no more once a request of this kind comes."""

    def __init__(self, method: str) -> None:
        self.method, self.is_waited_for = method, threading.Event()
        self.ends = threading.Event()
        self.server = Answers(self.answer)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        first, last = 0, len(FILE) - 1
        if request.command == "GET":
            first, last = map(int, request.headers["Range"][6:].split("-"))
        # The beginning of the file, with its header, is answered.
        if request.command == self.method and (self.method == "HEAD" or last > 256 << 10):
            self.is_waited_for.set()
            self.ends.wait()
        request.send_response(200 if request.command == "HEAD" else 206)
        request.send_header("Content-Length", str(last + 1 - first))
        request.send_header("ETag", '"e"')
        if request.command == "GET":
            request.send_header("Content-Range", f"bytes {first}-{last}/{len(FILE)}")
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(FILE[first:last + 1])


@pytest.fixture
def silent(request: pytest.FixtureRequest) -> Iterator[Silent]:
    server = Silent(request.param)
    yield server
    server.ends.set()
    server.server.close()


def started(code: str, endpoint: str) -> subprocess.Popen[bytes]:
    """A process of Python whose client asks this endpoint."""
    env: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path),
                           "AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
                           "AWS_SECRET_ACCESS_KEY": "secret"}
    return subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


@pytest.mark.parametrize("call, silent", [(call, method) for call, (_, _, method) in WAYS.items()],
                         indirect=["silent"])
def test_ctrl_c_ends_what_waits_for_several(call: str, silent: Silent) -> None:
    package, imports, _ = WAYS[call]
    require(package)
    with started(f"{imports}\n{call}", silent.server.endpoint) as child:
        try:
            assert silent.is_waited_for.wait(60)
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=SECONDS)
        finally:
            child.kill()
    assert said.strip().endswith(b"KeyboardInterrupt")


@pytest.mark.parametrize("call", WAYS)
def test_a_thread_goes_on_when_the_main_one_has_ended(serve: Serve, call: str) -> None:
    package, imports, _ = WAYS[call]
    require(package)
    origin = serve(small_objects(2) | {"data/train/model": FILE})
    code = f"{imports}\nimport threading\n" \
           "def work():\n    threading.main_thread().join()\n" \
           f"    print(len({call}))\nthreading.Thread(target=work).start()\n"
    with started(code, origin.endpoint) as child:
        printed, said = child.communicate()
    assert printed.strip() in (b"1", b"2"), said.decode()


#: A process that ends while a thread reads that does not keep it, and takes its time for the end.
DAEMON = """
import inrush, threading, time

client, begun = inrush.Client(), threading.Event()

def work():
    while client.read('s3://data/train/0000.bin'):
        begun.set()

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(0.2)

slow = Slow()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
begun.wait()
"""


def test_a_thread_that_reads_does_not_disturb_the_end(serve: Serve) -> None:
    with started(DAEMON, serve(small_objects(1)).endpoint) as child:
        _, said = child.communicate()
    assert (child.returncode, said) == (0, b"")
