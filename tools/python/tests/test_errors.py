"""Failures, and the exceptions that report them."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inrush
import pytest
from common import Answers, pattern
from inrush import _errors

Serve = Callable[..., Any]
OBJECTS = {"data/a": b"0123456789", "data/big": pattern(30_000_000)}


def test_classes_are_those_of_python_too() -> None:
    for of, base in [
        (inrush.NotFound, FileNotFoundError), (inrush.PermissionDenied, PermissionError),
        (inrush.Credentials, PermissionError), (inrush.Timeout, TimeoutError),
        (inrush.ConnectionFailed, ConnectionError), (inrush.InvalidRange, ValueError),
        (inrush.Closed, ValueError), (inrush.Throttled, OSError),
    ]:  # fmt: skip
        assert issubclass(of, base) and issubclass(of, inrush.Error) and issubclass(of, OSError)
        error = of("it failed", uri="s3://b/k/l", attempts=3, request_id="R1")
        assert str(error) == "it failed" and error.kind and error.errno
        for again in (error, pickle.loads(pickle.dumps(error))):
            assert type(again) is of
            fields = (again.uri, again.key, again.attempts, again.request_id, str(again))
            assert fields == ("s3://b/k/l", "k/l", 3, "R1", "it failed")
            assert (again.bucket, again.filename) == ("b", again.uri)


def test_a_class_that_pytorch_pickles_has_the_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    for of in [inrush.Error, *_errors._CLASSES.values()]:
        error = _errors.from_native(of.kind, "it failed", "s3://b/k/l", 3, "R1")
        assert isinstance(error, of) and type(error).__name__ == of.__name__
        # What torch.utils.data does: the class is pickled, its instance made of the text.
        again = pickle.loads(pickle.dumps(type(error)))("Caught it: it failed")
        assert isinstance(again, of) and str(again) == "Caught it: it failed"
        fields = (again.kind, again.uri, again.filename, again.bucket, again.key)
        assert fields == (of.kind, "s3://b/k/l", "s3://b/k/l", "b", "k/l")
        assert (again.attempts, again.request_id) == (3, "R1")
        assert pickle.loads(pickle.dumps(again)).uri == "s3://b/k/l"
        # Another error of this kind is about another object.
        assert of("it failed").uri is None


def test_classes_of_errors_that_are_gone_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)

    def error(at: int) -> inrush.Error:
        return _errors.from_native("not_found", "it failed", f"s3://b/{at}")

    before = len(inrush.NotFound.__subclasses__())
    gc.disable()
    try:
        for at in range(1000):
            assert error(at).uri == f"s3://b/{at}"
        # Those that are there keep theirs, and what PyTorch hands on is the class alone.
        few = [error(at) for at in range(20)]
        assert [one.uri for one in few] == [f"s3://b/{at}" for at in range(20)]
        classes = [type(one) for one in few]
        del few
        for at in range(1000):
            error(-at)
        assert [of("again").uri for of in classes] == [f"s3://b/{at}" for at in range(20)]
        assert len(inrush.NotFound.__subclasses__()) <= before + _errors.CLASSES_KEPT
        many = [error(at) for at in range(_errors.CLASSES_KEPT * 2)]
        assert len({type(one) for one in many}) == len(many)
    finally:
        gc.enable()


def test_messages_name_arguments_not_options() -> None:
    for said, expected in [
        ("check --endpoint-url, --region and the network",
         "check endpoint_url, region and the network"),
        ("no key; for public data --no-sign-request", "no key; for public data no_sign_request"),
        ("aws sso login --profile p", "aws sso login --profile p"),
        ("give --cap-add NET_RAW", "give --cap-add NET_RAW"),
        ("get s3://b/a --region: s3://b/x--x-s3", "get s3://b/a --region: s3://b/x--x-s3"),
    ]:  # fmt: skip
        assert str(_errors.from_native("usage", said, "s3://b/a --region")) == expected
    options: dict[str, Any] = {"memory": 1000, "no_sign_request": True, "region": "us-east-1"}
    with pytest.raises(inrush.Usage, match="^memory 1000 is too small"):
        inrush.Client(**options, endpoint_url="http://127.0.0.1:1")


def test_missing_objects_and_buckets(serve: Serve) -> None:
    with serve(OBJECTS).client() as client:
        with pytest.raises(inrush.NotFound, match="s3://data/none is not there") as caught:
            client.read("s3://data/none")
        assert (caught.value.kind, caught.value.uri) == ("not_found", "s3://data/none")
        for ask in (client.stat, client.open, client.read):
            with pytest.raises(FileNotFoundError):
                ask("s3://no-such-bucket/none")
        with pytest.raises(FileNotFoundError):
            list(client.list("s3://no-such-bucket/"))
        gone = inrush.ObjectInfo("s3://data/none", 10)
        with pytest.raises(inrush.NotFound):
            client.read(gone)


def test_ranges_beyond_the_end(serve: Serve) -> None:
    with serve(OBJECTS).client() as client:
        for wrong in [(0, 11), (10, 1), (11, 0), (2**62, 2**62), (2**63 - 1, 2**63 - 1)]:
            with pytest.raises(inrush.InvalidRange, match="10"):
                client.read("s3://data/a", wrong)
        for wrong in [(-1, 2), (1, -2)]:
            with pytest.raises(ValueError, match="range"):
                client.read("s3://data/a", wrong)
        for nonsense in [7, (1,), ("a", "b"), (1, 2, 3)]:
            with pytest.raises(TypeError, match="range"):
                client.read("s3://data/a", nonsense)  # type: ignore[arg-type]


def test_buffers_that_cannot_be_written(serve: Serve) -> None:
    buffers: list[tuple[Any, str]] = [
        (b"read only", "writable|read-only"), (memoryview(b"0123456789"), "writable|read-only"),
        (memoryview(bytearray(20))[::2], "contiguous"), ("text", "bytes-like"), (7, "bytes-like"),
    ]  # fmt: skip
    numpy = pytest.importorskip("numpy")
    fixed = numpy.zeros(20, dtype="u1")
    fixed.flags.writeable = False
    buffers += [(fixed, "writable|read-only"), (numpy.zeros((4, 10))[:, ::3], "contiguous")]
    with serve(OBJECTS).client() as client:
        with pytest.raises(inrush.InvalidRange, match="9 bytes is too small for 10"):
            client.read_into("s3://data/a", bytearray(9))
        for wrong, why in buffers:
            with pytest.raises((TypeError, BufferError, ValueError), match=why):
                client.read_into("s3://data/a", wrong)
            with pytest.raises((TypeError, BufferError, ValueError), match=why):
                asyncio.run(client.async_read_into("s3://data/a", wrong))
        # Nothing of it holds up what comes next.
        assert client.read_into("s3://data/a", bytearray(10)) == 10


async def entered(client: inrush.Client) -> bytes:
    """What it reads in an `async with`, which closes it."""
    async with client:
        return await client.async_read("s3://data/a")


def test_async_with_closes_a_client(serve: Serve) -> None:
    client = serve(OBJECTS).client()
    assert asyncio.run(entered(client)) == OBJECTS["data/a"]
    assert client.closed


def test_a_client_that_is_closed_does_nothing_more(serve: Serve) -> None:
    client = serve(OBJECTS).client()
    with client.open("s3://data/big") as file:
        file.read(10)
        client.close()
        client.close()
        with pytest.raises(inrush.Closed):
            while file.read(1 << 20):
                pass
    calls: list[Callable[[], Any]] = [
        client.__enter__, lambda: asyncio.run(entered(client)),
        lambda: client.read("s3://data/a"), lambda: client.stat("s3://data/a"),
        lambda: client.read_into("s3://data/a", bytearray(10)), lambda: client.open("s3://data/a"),
        lambda: list(client.list("s3://data/")), lambda: list(client.read_many(["s3://data/a"])),
        lambda: asyncio.run(client.async_read("s3://data/a")),
        lambda: asyncio.run(client.async_stat("s3://data/a")),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(inrush.Closed, match="closed") as caught:
            call()
        assert isinstance(caught.value, ValueError) and isinstance(caught.value, OSError)


def test_addresses_that_are_none(serve: Serve) -> None:
    with serve(OBJECTS).client() as client:
        for wrong in ["data/a", "http://data/a", "s3://", "s3://data", "s3://a*/a"]:
            with pytest.raises(inrush.Usage):
                client.read(wrong)
        for nonsense in [b"s3://data/a", 7, None]:
            with pytest.raises(TypeError, match="source"):
                client.read(nonsense)


def test_what_was_replaced_is_reported(serve: Serve) -> None:
    with serve(OBJECTS).client() as client:
        old = inrush.ObjectInfo("s3://data/a", 10, '"another"')
        with pytest.raises(inrush.Changed) as caught:
            client.read(old)
        assert caught.value.attempts is not None and caught.value.uri == "s3://data/a"


def test_refusals_name_the_request(serve: Serve) -> None:
    origin = serve(OBJECTS, "--access-key", "AKID", "--secret-key", "hidden")
    with origin.client() as client, pytest.raises(PermissionError) as caught:
        client.read("s3://data/a")
    assert isinstance(caught.value, inrush.Error) and caught.value.request_id


def test_no_credentials(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = serve(OBJECTS)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    client = inrush.Client(endpoint_url=origin.endpoint, region="us-east-1")
    for _ in range(2):
        with pytest.raises(inrush.Credentials):
            client.read("s3://data/a")
    # They come to be there: the same client finds them.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    assert client.read("s3://data/a") == OBJECTS["data/a"]
    client.close()


def test_nobody_answers() -> None:
    options: dict[str, Any] = {"no_sign_request": True, "region": "us-east-1", "retry_for": 0.0}
    with inrush.Client(endpoint_url="http://127.0.0.1:1", **options) as client:
        with pytest.raises(inrush.ConnectionFailed, match="127.0.0.1:1") as caught:
            client.read("s3://data/a")
        assert caught.value.attempts


def test_a_server_that_dies_in_the_middle_is_tried_again_then_named() -> None:
    def answer(request: Any) -> None:
        request.send_response(200 if request.command == "HEAD" else 206)
        request.send_header("Content-Length", "1000")
        request.send_header("ETag", '"e"')
        if request.command == "GET":
            request.send_header("Content-Range", "bytes 0-999/1000")
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(b"x" * 10)
            request.close_connection = True

    server = Answers(answer)
    options: dict[str, Any] = {"no_sign_request": True, "region": "us-east-1", "retry_for": 0.0}
    with inrush.Client(endpoint_url=server.endpoint, **options) as client:
        with pytest.raises(inrush.Error, match="get s3://data/a.* after") as caught:
            client.read("s3://data/a")
    server.close()
    gets = sum(seen.startswith("GET") for seen in server.seen)
    assert caught.value.attempts is not None and 1 < caught.value.attempts <= gets
    assert caught.value.kind in ("network", "server")


INTERRUPTED = """
import sys, inrush
client = inrush.Client(endpoint_url=sys.argv[1], no_sign_request=True, region="us-east-1")
print("ready", flush=True)
try:
    {}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    print(len(client.read("s3://data/a")), flush=True)
    client.close()
"""
WAITS = [
    'client.read("s3://data/big")',
    'client.read_into("s3://data/big", bytearray(40_000_000))',
    'list(client.read_many(["s3://data/big"] * 3))',
    'client.get("s3://data/big", sys.argv[2] + "/")',
]


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_a_wait(serve: Serve, wait: str, tmp_path: Path) -> None:
    origin = serve(OBJECTS, "--connection-rate", "100KB")
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(wait), origin.endpoint, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    # Wherever it is then: at no place it is lost.
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    assert child.stdout.read() == "interrupted\n10\n"
    assert child.wait() == 0
