"""Models of several files: opened, in slices, as streams; and whatever their headers say."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from common import Answers, pattern
from conftest import Origin, require

torch = require("torch")

import inrush  # noqa: E402
import inrush._headers  # noqa: E402
import inrush._tensors  # noqa: E402
import inrush.safetensors  # noqa: E402
from test_safetensors import alike, file_of, tensor  # noqa: E402

Serve = Callable[..., Origin]
INDEX = "data/m/model.safetensors.index.json"
#: Bytes that are read of a tensor, by range.
Reads = list[tuple[int, int]]


def of_files(made: dict[str, Any], count: int) -> dict[str, bytes]:
    """The objects of a model that has `count` files, and their index."""
    write = require("safetensors.torch").save
    parts = {f"m-{part}.safetensors": list(made)[part::count] for part in range(count)}
    index = {"weight_map": {name: file for file, mine in parts.items() for name in mine}}
    return {INDEX: json.dumps(index).encode()} | {
        f"data/m/{file}": write({name: made[name] for name in mine}, metadata={"file": file})
        for file, mine in parts.items()}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """The ranges that are read into tensors."""
    requested: Reads = []
    original = inrush._tensors._pieces

    def noted(ranges: Any) -> Any:
        for piece in original(ranges):
            requested.append((piece[0], piece[2]))
            yield piece

    monkeypatch.setattr(inrush._tensors, "_pieces", noted)
    return requested


def test_a_file_an_index_and_a_folder(serve: Serve) -> None:
    torch.manual_seed(1)
    made = {f"layer.{at}": torch.randn(at, 300) for at in range(40)}
    files = of_files(made, 3)
    serve(files | {"data/m/config.json": b"{}", "data/m/other/x.safetensors": b"none"}
          | {name.replace("/m/", "/plain/"): data for name, data in files.items()
             if not name.endswith(".json")} | {"data/empty/x": b""})
    for uri in (f"s3://{INDEX}", "s3://data/m/", "s3://data/plain/"):
        with inrush.safetensors.open(uri) as model:
            assert model.keys() == sorted(made) and set(model.offset_keys()) == set(made)
            assert model.metadata() == {"file": "m-0.safetensors"}
            streamed = list(model.tensors())
            assert [name for name, _ in streamed] == model.offset_keys()
            alike(dict(streamed), made)
            alike({"layer.7": model.get_tensor("layer.7")}, {"layer.7": made["layer.7"]})
            with pytest.raises(KeyError, match="'gone'"):
                model.get_tensor("gone")
        alike(inrush.safetensors.load(uri), made)
    with inrush.safetensors.open("s3://data/m/m-1.safetensors", names=["layer.1"]) as model:
        assert model.keys() == ["layer.1"]
    with pytest.raises(inrush.NotFound, match=r"no \*.safetensors"):
        inrush.safetensors.open("s3://data/empty/")


def test_names_that_two_files_have(serve: Serve) -> None:
    write = require("safetensors.torch").save
    one = write({"a": torch.ones(2)})
    serve({"data/m/1.safetensors": one, "data/m/2.safetensors": one})
    with pytest.raises(ValueError, match="'a' is in s3://data/m/2.* and in s3://data/m/1"):
        inrush.safetensors.open("s3://data/m/")


def test_several_indexes(serve: Serve) -> None:
    files = of_files({"a": torch.ones(2), "b": torch.ones(3)}, 2)
    serve(files | {"data/m/model.fp16.safetensors.index.json": b"[]",
                   "data/n/a.safetensors.index.json": b"[]",
                   "data/n/b.safetensors.index.json": b"[]"})
    assert inrush.safetensors.open("s3://data/m/").keys() == ["a", "b"]
    with pytest.raises(ValueError, match="has several indexes"):
        inrush.safetensors.open("s3://data/n/")


def test_a_missing_file_is_named_before_any_is_read(serve: Serve,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    files = of_files({f"t{at}": torch.ones(2) for at in range(9)}, 3)
    del files["data/m/m-1.safetensors"]
    serve(files)

    def refused(*_: Any) -> Any:
        raise AssertionError("a header was read")

    monkeypatch.setattr(inrush._headers, "read", refused)
    for uri in (f"s3://{INDEX}", "s3://data/m/"):
        with pytest.raises(inrush.NotFound, match=f"m-1.safetensors.*; s3://{INDEX} names it"):
            inrush.safetensors.open(uri)


def test_who_may_not_list(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {f"t{at}": torch.ones(2) for at in range(9)}
    serve(of_files(made, 3))

    def refused(*_: Any, **__: Any) -> Any:
        raise inrush.PermissionDenied("no listing")

    monkeypatch.setattr(inrush.Client, "list", refused)
    alike(inrush.safetensors.load(f"s3://{INDEX}"), made)


SLICES = [0, -1, slice(None), slice(1, 3), slice(-2, None), slice(2, 1), slice(0, 99),
          slice(None, None, 2), (slice(None), 1), (slice(None), slice(1, 2)), (Ellipsis, 0),
          (Ellipsis, slice(1, 3)), (0, Ellipsis, 1), (1, 2, 3), Ellipsis, (), None, [0, 2], True,
          (slice(None), slice(None), slice(1, 4, 2)), (slice(1, 4), slice(2, 3), slice(0, 2))]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8", "complex64", "float8_e4m3fn"])
def test_slices_are_those_of_safetensors(serve: Serve, tmp_path: Path, dtype: str) -> None:
    made = torch.arange(120).reshape(4, 5, 6).to(getattr(torch, dtype))
    require("safetensors.torch").save_file(
        {"a": torch.ones(1, dtype=torch.uint8), "b": made}, tmp_path / "x")
    serve({"data/x": (tmp_path / "x").read_bytes()})
    with require("safetensors").safe_open(tmp_path / "x", "pt") as theirs, \
            inrush.safetensors.open("s3://data/x") as ours:
        there, here = theirs.get_slice("b"), ours.get_slice("b")
        assert (here.get_shape(), here.get_dtype()) == (there.get_shape(), there.get_dtype())
        for index in SLICES:
            alike({"b": here[index]}, {"b": there[index].contiguous()})
            assert here[index].is_contiguous()
        for wrong in (4, -5, (0, 0, 0, 0)):
            with pytest.raises(IndexError):
                there[wrong]
            with pytest.raises(IndexError):
                here[wrong]


def test_a_slice_reads_its_bytes_alone(serve: Serve, reads: Reads) -> None:
    made = {"rows": torch.randn(1000, 1000), "blocks": torch.randn(3, 400, 5000)}
    serve({"data/x": require("safetensors.torch").save(made)})
    with inrush.safetensors.open("s3://data/x") as model:
        rows, blocks = model.get_slice("rows"), model.get_slice("blocks")
        for index, length in [(slice(3, 5), 8000), (7, 4000), ((7, slice(5, 6)), 4)]:
            reads.clear()
            alike({"": rows[index]}, {"": made["rows"][index]})
            assert [one[1] for one in reads] == [length]
        reads.clear()
        part = (slice(1, 3), slice(10, 20))
        alike({"": blocks[part]}, {"": made["blocks"][part]})
        assert [one[1] for one in reads] == [200_000] * 2
        reads.clear()
        # Shorter pieces come with what is between them.
        alike({"": rows[:, 2:4]}, {"": made["rows"][:, 2:4]})
        assert [one[1] for one in reads] == [999 * 4000 + 8]


def test_parts_of_tensors(serve: Serve, reads: Reads) -> None:
    made = {"rows": torch.randn(1001, 600), "columns": torch.randn(7, 100_000),
            "short": torch.randn(10, 6), "plain": torch.arange(4.)}
    serve({"data/x": require("safetensors.torch").save(made)})
    for rank in range(4):
        shard = {"rows": (0, rank, 4), "columns": (-1, rank, 4), "short": (1, rank, 4)}
        reads.clear()
        found = inrush.safetensors.load("s3://data/x", shard=shard)
        parts = {name: made[name].chunk(4, dim)[rank] if rank < len(made[name].chunk(4, dim))
                 else made[name].narrow(dim, 0, 0) for name, (dim, _, _) in shard.items()}
        alike(found, {"plain": made["plain"]} | {name: one.contiguous()
                                                 for name, one in parts.items()})
        total = sum(one.numel() * 4 for one in found.values())
        assert sum(length for _, length in reads) <= total * 1.01
    for bad in ((2, 0, 4), (0, 4, 4), (0, -1, 4), (0, 0, 0)):
        with pytest.raises(ValueError, match="'short' of shape .10, 6. has no part"):
            inrush.safetensors.open("s3://data/x", shard={"short": bad})
    with pytest.raises(KeyError, match="'gone'"):
        inrush.safetensors.open("s3://data/x", shard={"gone": (0, 0, 1)})


def test_short_tensors_are_read_together(serve: Serve, reads: Reads) -> None:
    made = {f"expert.{at}": torch.full((at % 5, 3), float(at)) for at in range(5000)}
    serve({"data/x": require("safetensors.torch").save(made)})
    found = inrush.safetensors.load("s3://data/x")
    alike(found, made)
    assert len(reads) == 1
    # Who keeps one of them keeps its bytes alone.
    assert all(one.untyped_storage().nbytes() == one.numel() * 4 for one in found.values())


TYPES = [name for name, _ in inrush._headers.TYPES.values() if name and hasattr(torch, name)]


@pytest.mark.parametrize("seed", range(int(os.environ.get("INRUSH_TEST_SEEDS", "25"))))
def test_random_models(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
                       ) -> None:
    chosen = random.Random(seed)
    made = {}
    for at in range(chosen.choice([1, 10, 60])):
        dtype = getattr(torch, chosen.choice(TYPES))
        shape = [chosen.choice([0, 1, 1, 2, 3, 17, 128]) for _ in range(chosen.randrange(4))]
        length = torch.empty(shape, dtype=dtype).nbytes
        data = torch.tensor(list(chosen.randbytes(length)), dtype=torch.uint8)
        if dtype == torch.bool:
            data %= 2
        flat = data.view(dtype) if length else torch.empty(0, dtype=dtype)
        made[f"t{at}"] = flat.reshape(shape)
    monkeypatch.setattr(inrush._tensors, "PIECE_BYTES", chosen.choice([64, 1 << 20]))
    monkeypatch.setattr(inrush._parts, "LARGE_BYTES_MIN", chosen.choice([16, 1 << 20]))
    monkeypatch.setattr(inrush._ranges, "LARGE_BYTES_MIN", inrush._parts.LARGE_BYTES_MIN)
    monkeypatch.setattr(inrush.safetensors, "AHEAD_BYTES", chosen.choice([1, 1000, 1 << 30]))
    monkeypatch.setattr(inrush._tensors, "_can_be_written_to",
                        lambda device: bool(seed % 2))
    # Written by hand, in any order of types: elements begin at any byte.
    header, data, parts = {}, b"", list(made)
    chosen.shuffle(parts)
    names = {name: code for code, (name, _) in inrush._headers.TYPES.items()}
    for name in parts:
        one = made[name]
        shape = list(one.shape)
        if one.dtype == getattr(torch, "float4_e2m1fn_x2", None):
            if not shape:
                one = made[name] = one.reshape(1)
                shape = [1]
            shape[-1] *= 2
        code = names[str(one.dtype).removeprefix("torch.")]
        header[name] = tensor(code, shape, len(data), len(data) + one.nbytes)
        data += bytes(one.reshape(-1).view(torch.uint8).tolist()) if one.nbytes else b""
    file = file_of(header, data)
    serve({"data/x": file})
    alike(inrush.safetensors.load("s3://data/x"), made)
    with inrush.safetensors.open("s3://data/x") as model:
        assert sorted(model.offset_keys()) == sorted(made)
        alike(dict(model.tensors()), made)
        name = chosen.choice(parts)
        if made[name].dim():
            size = made[name].size(-1)
            start = chosen.randrange(size + 1)
            alike({name: model.get_slice(name)[..., start:]},
                  {name: made[name].view(torch.uint8)[..., start * made[name].element_size():]
                   .contiguous().view(made[name].dtype)} if size - start else
                  {name: made[name].narrow(-1, 0, 0)})


@pytest.mark.parametrize("dtype, length", [("F6_E2M3", 6), ("F128", 99)])
def test_a_type_that_pytorch_does_not_have_can_be_left_out(serve: Serve, dtype: str, length: int
                                                           ) -> None:
    serve({"data/a": file_of({"rare": tensor(dtype, [8], 0, length),
                              "plain": tensor("U8", [1], length, length + 1)},
                             bytes(length) + b"1")})
    with inrush.safetensors.open("s3://data/a") as model:
        assert model.keys() == ["plain", "rare"]
        assert model.get_tensor("plain").tolist() == [49]
        for read in (lambda: model.get_tensor("rare"), lambda: model.get_slice("rare"),
                     lambda: list(model.tensors())):
            with pytest.raises(ValueError, match=f"'rare' is of type {dtype}, which PyTorch"):
                read()


def test_what_is_closed(serve: Serve) -> None:
    made = {f"t{at}": torch.full((300_000,), float(at)) for at in range(9)}
    serve({"data/x": require("safetensors.torch").save(made)})
    model = inrush.safetensors.open("s3://data/x")
    begun = model.tensors()
    name, first = next(begun)
    model.close()
    alike({name: first}, {name: made[name]})
    for read in (lambda: next(begun), lambda: model.get_tensor("t1"),
                 lambda: model.get_slice("t1")[0], model.tensors):
        with pytest.raises(inrush.Closed):
            read()


class Replaced:
    """A server of one object, which is replaced before what is behind a byte is read."""

    def __init__(self, data: bytes, behind: int) -> None:
        self.data, self.behind, self.asked_with = data, behind, ""
        self.server = Answers(self.answer)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        first, last = 0, len(self.data) - 1
        expected = request.headers.get("If-Match", "")
        if request.command == "GET":
            first, last = map(int, request.headers["Range"][6:].split("-"))
        if first > self.behind:
            self.asked_with = expected
            request.send_response(412)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        request.send_response(200 if request.command == "HEAD" else 206)
        request.send_header("Content-Length", str(last + 1 - first))
        request.send_header("ETag", '"first"')
        request.send_header("Content-Range", f"bytes {first}-{last}/{len(self.data)}")
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(self.data[first:last + 1])


def test_an_object_that_was_replaced_behind_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    data = file_of({"a": tensor("U8", [1 << 20], 0, 1 << 20)}, bytes(1 << 20))
    server = Replaced(data, 8)
    try:
        client = inrush.Client(endpoint_url=server.server.endpoint, no_sign_request=True)
        model = inrush.safetensors.open("s3://data/x", client=client)
        for read in (lambda: model.get_tensor("a"), lambda: model.get_slice("a")[5:7],
                     lambda: list(model.tensors())):
            with pytest.raises(inrush.Changed, match="s3://data/x"):
                read()
        assert server.asked_with == '"first"'
    finally:
        server.server.close()


class Expires:
    """A server of one object that takes each pair of keys for a few requests."""

    def __init__(self, data: bytes, requests_max: int) -> None:
        self.data, self.requests_max = data, requests_max
        self.lock = threading.Lock()
        self.taken: dict[str, int] = {}
        self.refused = 0
        self.server = Answers(self.answer)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        key = request.headers["Authorization"].partition("Credential=")[2].partition("/")[0]
        with self.lock:
            newest = max([key, *self.taken])
            self.taken[key] = self.taken.get(key, 0) + 1
            is_expired = key != newest or self.taken[key] > self.requests_max
            self.refused += is_expired
        if is_expired:
            body, status = b"<Error><Code>ExpiredToken</Code></Error>", 403
        else:
            first, last = 0, len(self.data) - 1
            if request.command == "GET":
                first, last = map(int, request.headers["Range"][6:].split("-"))
            last = min(last, len(self.data) - 1)
            body, status = self.data[first:last + 1], 206 if request.command == "GET" else 200
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.send_header("ETag", '"only"')
        if status == 206:
            request.send_header("Content-Range", f"bytes {first}-{last}/{len(self.data)}")
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)


def test_keys_that_expire_while_a_model_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                              ) -> None:
    length, count = 1 << 20, 24
    bytes_of = pattern(length * count)
    data = file_of({f"t{at}": tensor("U8", [length], at * length, (at + 1) * length)
                    for at in range(count)}, bytes_of)
    keys, calls = tmp_path / "keys", tmp_path / "calls"
    keys.write_text(f"""#!/bin/sh
echo >> {calls}
printf '{{"Version": 1, "AccessKeyId": "KEY%03d", "SecretAccessKey": "s"}}' $(wc -l < {calls})
""")
    keys.chmod(0o700)
    config = tmp_path / "config"
    config.write_text(f"[default]\nregion = us-east-1\ncredential_process = {keys}\n")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(inrush._tensors, "PIECE_BYTES", length)
    server = Expires(data, 9)
    try:
        client = inrush.Client(endpoint_url=server.server.endpoint)
        found = inrush.safetensors.load("s3://data/x", client=client)
        assert all(bytes(found[f"t{at}"].numpy()) == bytes_of[at * length:(at + 1) * length]
                   for at in range(count))
        assert server.refused > 0 and len(server.taken) > 2, server.taken
    finally:
        server.server.close()


def test_headers_are_asked_for_with_the_index(serve: Serve, monkeypatch: pytest.MonkeyPatch
                                              ) -> None:
    made = {f"t{at}": torch.full((2000,), float(at)) for at in range(40)}
    files = of_files(made, 40)
    serve(files | {"data/plain/a.safetensors": files["data/m/m-0.safetensors"]})
    asked: list[int] = []
    original = inrush.Client.read_many

    def noted(self: Any, items: Any, **options: Any) -> Any:
        listed = list(items)
        asked.append(len(listed))
        return original(self, listed, **options)

    monkeypatch.setattr(inrush.Client, "read_many", noted)
    for uri, at_once in (("s3://data/m/", 41), (f"s3://{INDEX}", 41), ("s3://data/plain/", 1)):
        asked.clear()
        inrush.safetensors.open(uri)
        assert sum(asked) == max(asked) == at_once


HOSTILE = {
    "spaces": (lambda: b"{}" + b" " * 100_000_000, "at most 100000000 are possible"),
    "nested": (lambda: b'{"a":' + b"[" * 50_000_000, "its header: "),
    "objects": (lambda: b'{"a":' * 15_000_000, "its header: "),
    "numbers": (lambda: b'{"a": ' + b"9" * 50_000_000 + b"}", "its header: "),
    "utf-16": (lambda: b"\xff\xfe" + '{"a": 1}'.encode("utf-16-le"), "its header: "),
    "nan": (lambda: b'{"a": {"dtype": "U8", "shape": [NaN], "data_offsets": [0, 1]}}',
            "no list of whole numbers"),
    "strides": (lambda: json.dumps({"a": tensor("U8", [2**62, 2**62, 0], 0, 0)}).encode(),
                "larger than any memory"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers(serve: Serve, name: str) -> None:
    make, what = HOSTILE[name]
    serve({f"data/{name}": file_of(make(), b"1")})
    with pytest.raises(ValueError, match="is no safetensors file: ") as caught:
        inrush.safetensors.open(f"s3://data/{name}")
    assert what in str(caught.value) and f"s3://data/{name}" in str(caught.value)
    assert len(str(caught.value)) < 1000


#: Streams a model, and prints how many MiB its process had at most beyond what it had before.
STREAM = """
import sys
import inrush.safetensors
sys.path.insert(0, {tests!r})
from common import resident
with inrush.safetensors.open("s3://data/m/1") as model:
    model.get_slice("t0")[:100]
    before, most, total = resident(), 0, 0
    for name, tensor in model.tensors():
        total += tensor.nbytes
        most = max(most, resident())
        del tensor
print(total, (most - before) >> 20)
"""


def test_the_memory_of_a_stream_is_bounded(serve: Serve, tmp_path: Path) -> None:
    count, length = 40, 32 << 20
    text = json.dumps({f"t{at}": tensor("U8", [length], at * length, (at + 1) * length)
                       for at in range(count)})
    # A file with holes: nothing of it is in memory.
    file = tmp_path / "model"
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text.encode())
        out.truncate(8 + len(text) + count * length)
    serve({"data/m/1": file})
    printed = subprocess.run(
        [sys.executable, "-c", STREAM.format(tests=str(Path(__file__).parent))],
        check=True, capture_output=True, text=True)
    total, most = map(int, printed.stdout.split())
    assert total == count * length
    # What is ahead (and a read beyond it), the tensor that is next, and the one that is here.
    assert most < 600
