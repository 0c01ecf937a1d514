"""Tensors of safetensors files, and files that are none."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from common import prefers_huge_pages
from conftest import Origin, require

torch = require("torch")

import inrush._tensors  # noqa: E402
import inrush.safetensors  # noqa: E402

Serve = Callable[..., Origin]


def file_of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file with this header, whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype: str, shape: list[Any], start: Any, end: Any) -> dict[str, Any]:
    """An entry of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def tensors() -> dict[str, Any]:
    """Tensors of many types; one larger than what is read at first, one empty, one scalar."""
    torch.manual_seed(1)
    made = {name: torch.randn(7, 5).to(getattr(torch, name))
            for name in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn",
                         "float8_e5m2")}
    made |= {name: torch.randint(0, 100, (3, 4, 5)).to(getattr(torch, name))
             for name in ("int64", "int32", "int16", "int8", "uint8")}
    return made | {"bool": torch.tensor([True, False]), "none": torch.zeros(0, 4),
                   "scalar": torch.tensor(2.5), "large": torch.randn(300, 200)}


def alike(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """All the same, in type, shape and bytes."""
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        assert found[name].dtype == one.dtype and found[name].shape == one.shape, name
        assert torch.equal(found[name].reshape(-1).view(torch.uint8),
                           one.reshape(-1).view(torch.uint8)), name


@pytest.mark.parametrize("piece_bytes", [1 << 20, 1000])
def test_a_file_is_as_it_was_written(serve: Serve, monkeypatch: pytest.MonkeyPatch,
                                     piece_bytes: int) -> None:
    write = require("safetensors.torch").save
    monkeypatch.setattr(inrush._tensors, "PIECE_BYTES", piece_bytes)
    made = tensors()
    serve({"data/model.safetensors": write(made, metadata={"format": "pt"})})
    uri = "s3://data/model.safetensors"
    alike(inrush.safetensors.load(uri), made)
    some = {name: made[name] for name in ("large", "int8")}
    alike(inrush.safetensors.load(uri, names=some.keys()), some)
    with pytest.raises(KeyError, match="'gone'"):
        inrush.safetensors.load(uri, names=["gone", "int8"])
    header = inrush.safetensors.read_header(uri)
    assert header.metadata == {"format": "pt"}
    assert {one.name: one.shape for one in header.tensors} == \
        {name: tuple(one.shape) for name, one in made.items()}


def test_large_tensors_have_huge_pages(serve: Serve) -> None:
    write = require("safetensors.torch").save
    made = {"large": torch.randint(0, 256, (40 << 20,), dtype=torch.uint8), "small": torch.ones(9)}
    serve({"data/model.safetensors": write(made)})
    loaded = inrush.safetensors.load("s3://data/model.safetensors")
    alike(loaded, made)
    assert prefers_huge_pages(loaded["large"].data_ptr() + (4 << 20))


def test_a_long_header(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    write = require("safetensors.torch").save
    made = {f"layer.{at}.weight": torch.full((2,), float(at)) for at in range(2000)}
    serve({"data/model.safetensors": write(made)})
    alike(inrush.safetensors.load("s3://data/model.safetensors"), made)


def test_several_files_with_an_index(serve: Serve) -> None:
    write = require("safetensors.torch").save
    made = tensors()
    names = list(made)
    parts = {f"m-{part}.safetensors": names[part::3] for part in range(3)}
    index = {"metadata": {}, "weight_map": {name: file for file, mine in parts.items()
                                            for name in mine}}
    files = {f"data/m/{file}": write({name: made[name] for name in mine})
             for file, mine in parts.items()}
    bad = {"bad": [], "up": {"weight_map": {"a": "../m-0.safetensors"}},
           "gone": {"weight_map": {"gone": "m-0.safetensors"}}}
    serve(files | {"data/m/model.safetensors.index.json": json.dumps(index).encode()}
          | {f"data/m/{name}.json": json.dumps(text).encode() for name, text in bad.items()})
    alike(inrush.safetensors.load("s3://data/m/model.safetensors.index.json"), made)
    one = inrush.safetensors.load("s3://data/m/model.safetensors.index.json", names=["int8"])
    alike(one, {"int8": made["int8"]})
    for name, kind, what in [("bad", ValueError, "weight_map"), ("up", ValueError, "folder"),
                             ("gone", KeyError, "'gone'")]:
        with pytest.raises(kind, match=what):
            inrush.safetensors.load(f"s3://data/m/{name}.json")


BAD = {
    "empty": (b"", "at least 8 are needed"),
    "long": (file_of({}, length=3), "at most 2 are possible"),
    "huge": (file_of({}, length=2**63), "at most 2 are possible"),
    "no-json": (file_of(b"{"), "its header: "),
    "list": (file_of([]), "no JSON object"),
    "twins": (file_of(b'{"a": 1, "a": 2}'), "a name occurs twice"),
    "deep": (file_of(b"[" * 100_000), "its header: "),
    "metadata": (file_of({"__metadata__": {"a": 1}}), "no object of strings"),
    "no-tensor": (file_of({"a": 1}), "the tensor 'a': it is no JSON object"),
    "missing": (file_of({"a": {"dtype": "U8", "shape": [1]}}, b"1"), "data_offsets"),
    "type-list": (file_of({"a": tensor([], [1], 0, 1)}, b"1"),  # type: ignore[arg-type]
                  "its type [] is no string"),
    "half": (file_of({"a": tensor("F6_E2M3", [2], 0, 2)}, b"12"), "end within a byte"),
    "odd": (file_of({"a": tensor("F4", [2, 3], 0, 3)}, b"123"), "end within a byte"),
    "negative": (file_of({"a": tensor("U8", [-1], 0, 1)}, b"1"), "no list of whole numbers"),
    "float": (file_of({"a": tensor("U8", [1.0], 0, 1)}, b"1"), "no list of whole numbers"),
    "true": (file_of({"a": tensor("U8", [True], 0, 1)}, b"1"), "no list of whole numbers"),
    "backwards": (file_of({"a": tensor("U8", [1], 1, 0)}, b"1"), "-1 bytes"),
    "too-short": (file_of({"a": tensor("F32", [2], 0, 4)}, b"1234"), "type need 8"),
    "too-many": (file_of({"a": tensor("U8", [2**62, 2**62, 0, 2**62], 0, 1)}, b"1"),
                 "larger than any memory"),
    "dimensions": (file_of({"a": tensor("U8", [1] * 65, 0, 1)}, b"1"), "65 dimensions"),
    "gap": (file_of({"a": tensor("U8", [1], 1, 2)}, b"12"), "begins at byte"),
    "overlap": (file_of({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, b"123"),
                "'b' begins at byte"),
    "beyond": (file_of({"a": tensor("U8", [9], 0, 9)}, b"1"), "its tensors end at byte"),
    "behind": (file_of({"a": tensor("U8", [1], 0, 1)}, b"12"), "its tensors end at byte"),
}


def test_what_is_no_file(serve: Serve) -> None:
    serve({f"data/{name}": data for name, (data, _) in BAD.items()})
    for name, (_, what) in BAD.items():
        with pytest.raises(ValueError, match="is no safetensors file: ") as caught:
            inrush.safetensors.load(f"s3://data/{name}")
        assert what in str(caught.value) and f"s3://data/{name}" in str(caught.value), name


@pytest.mark.parametrize("name", ["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
                                  "float4_e2m1fn_x2", "complex64", "uint16", "uint32", "uint64"])
def test_types_that_are_rare(serve: Serve, name: str) -> None:
    if not hasattr(torch, name):
        pytest.skip(f"!! SKIPPED: this PyTorch has no {name}")
    made = {"rare": torch.arange(64, dtype=torch.uint8).reshape(2, 32).view(getattr(torch, name))}
    serve({"data/model.safetensors": require("safetensors.torch").save(made)})
    alike(inrush.safetensors.load("s3://data/model.safetensors"), made)


@pytest.mark.parametrize("dtype, length", [("F6_E2M3", 6), ("F6_E3M2", 6), ("F128", 99)])
def test_types_that_pytorch_does_not_have(serve: Serve, dtype: str, length: int) -> None:
    serve({"data/a": file_of({"rare": tensor(dtype, [8], 0, length),
                              "plain": tensor("U8", [1], length, length + 1)},
                             bytes(length) + b"1")})
    assert inrush.safetensors.load("s3://data/a", names=["plain"])["plain"].tolist() == [49]
    assert {one.dtype for one in inrush.safetensors.read_header("s3://data/a").tensors} == \
        {dtype, "U8"}
    with pytest.raises(ValueError, match=f"'rare' is of type {dtype}, which PyTorch"):
        inrush.safetensors.load("s3://data/a")


def test_one_name_is_no_list_of_names() -> None:
    with pytest.raises(TypeError, match="names is one str"):
        inrush.safetensors.load("s3://data/a", names="extra")


def test_a_gpu_has_the_same(serve: Serve) -> None:
    if not torch.cuda.is_available():
        pytest.skip("!! SKIPPED: no GPU")
    made = tensors()
    serve({"data/model.safetensors": require("safetensors.torch").save(made)})
    found = inrush.safetensors.load("s3://data/model.safetensors", device="cuda")
    assert all(one.is_cuda for one in found.values())
    alike({name: one.cpu() for name, one in found.items()}, made)


def test_the_way_over_buffers_has_the_same(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    # As for a GPU, in buffers that are not pinned: a device that is not called cpu.
    made = tensors()
    serve({"data/model.safetensors": require("safetensors.torch").save(made)})
    monkeypatch.setattr(inrush._tensors, "PIECE_BYTES", 1000)
    monkeypatch.setattr(inrush._tensors, "_can_be_written_to", lambda device: False)
    alike(inrush.safetensors.load("s3://data/model.safetensors"), made)
