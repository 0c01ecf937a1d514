"""`inrush.torch.load`: what `torch.save` wrote, without a file."""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Origin, require

torch = require("torch")

import inrush  # noqa: E402
import inrush._pt  # noqa: E402
import inrush.torch  # noqa: E402
from test_models import Replaced  # noqa: E402

Serve = Callable[..., Origin]
URI = "s3://data/model.pt"


def saved(made: Any, **options: Any) -> bytes:
    """The object."""
    out = io.BytesIO()
    torch.save(made, out, **options)
    return out.getvalue()


def state() -> dict[str, Any]:
    """Tensors of many types and layouts, two of one memory, and what is no tensor."""
    torch.manual_seed(1)
    shared = torch.randn(300, 200)
    made: dict[str, Any] = {
        "shared": shared, "its rows": shared[10:20], "its columns": shared.t(),
        "long": torch.randint(0, 1 << 40, (200_000,)), "half": torch.randn(99).bfloat16(),
        "scalar": torch.tensor(2.5), "none": torch.zeros(0, 4), "bool": torch.tensor([True, False]),
        "parameter": torch.nn.Parameter(torch.randn(3)), "step": 17, "words": ["of", "a run"],
        "sparse": torch.eye(5).to_sparse(), "nested": OrderedDict(a={"b": torch.ones(2)})}
    return made | {f"layer.{at}": torch.full((at + 1, 300), float(at)) for at in range(300)}


def alike(found: Any, expected: Any) -> None:
    """All the same."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, one in expected.items():
            alike(found[name], one)
    elif torch.is_tensor(expected):
        assert found.dtype == expected.dtype and found.layout == expected.layout
        assert torch.equal(found.to_dense(), expected.to_dense())
    else:
        assert found == expected


def test_it_is_what_was_saved(serve: Serve) -> None:
    made = state()
    serve({"data/model.pt": saved(made)})
    found = inrush.torch.load(URI)
    alike(found, made)
    assert found["shared"].data_ptr() == found["its columns"].data_ptr()
    alike(inrush.torch.load(URI, map_location="cpu", weights_only=False), made)


@pytest.mark.parametrize("ends_bytes", [1 << 10, 20 << 10, 64 << 20])
def test_wherever_its_ends_are(serve: Serve, monkeypatch: pytest.MonkeyPatch, ends_bytes: int
                               ) -> None:
    monkeypatch.setattr(inrush._pt, "ENDS_BYTES", ends_bytes)
    made = state()
    serve({"data/model.pt": saved(made)})
    alike(inrush.torch.load(URI), made)


def test_it_is_read_once_and_not_piece_by_piece(serve: Serve, monkeypatch: pytest.MonkeyPatch
                                                ) -> None:
    made = {f"t{at}": torch.full((100_000,), float(at)) for at in range(100)} \
        | {f"short.{at}": torch.full((10,), float(at)) for at in range(1000)}
    data = saved(made)
    serve({"data/model.pt": data})
    alone: list[int] = []
    ahead: list[int] = []
    read, ask = inrush.Client.read, inrush._file.Ahead.ask

    def noted_read(self: Any, source: Any, range: Any = None) -> bytes:
        alone.append(range[1])
        return read(self, source, range)

    def noted_ask(self: Any, begin: int, length: int) -> bool:
        asked = ask(self, begin, length)
        if asked:
            ahead.append(length)
        return asked

    monkeypatch.setattr(inrush.Client, "read", noted_read)
    monkeypatch.setattr(inrush._file.Ahead, "ask", noted_ask)
    alike(inrush.torch.load(URI), made)
    assert len(alone) <= 4
    assert sum(alone) + sum(ahead) + 2 * inrush._pt.ENDS_BYTES < len(data) * 1.05
    alone.clear()
    ahead.clear()
    inrush.torch.load(URI, map_location="meta")
    assert sum(alone) + sum(ahead) < len(data) / 10


def test_what_is_refused(serve: Serve) -> None:
    serve({"data/old.pt": saved({"a": torch.ones(2)}, _use_new_zipfile_serialization=False),
           "data/empty.pt": b"", "data/code.pt": saved({"a": os.getcwd}),
           "data/cut.pt": saved({"a": torch.ones(200_000)})[:-100]})
    for name in ("old", "empty"):
        with pytest.raises(ValueError, match=f"s3://data/{name}.pt is no zip file, as torch.save"):
            inrush.torch.load(f"s3://data/{name}.pt")
    with pytest.raises(pickle.UnpicklingError):
        inrush.torch.load("s3://data/code.pt")
    assert inrush.torch.load("s3://data/code.pt", weights_only=False) == {"a": os.getcwd}
    with pytest.raises(RuntimeError, match="central directory"):
        inrush.torch.load("s3://data/cut.pt")
    with pytest.raises(inrush.NotFound):
        inrush.torch.load("s3://data/gone.pt")


def test_damaged_directories(serve: Serve) -> None:
    data = saved({"a": torch.ones(200_000)})
    at = data.rindex(b"PK\x01\x02")
    far = data[:at + 42] + struct.pack("<I", 0xFFFFFF00) + data[at + 46:]
    serve({"data/far.pt": far})
    with pytest.raises(RuntimeError):
        inrush.torch.load("s3://data/far.pt")


def test_an_object_that_is_replaced_meanwhile() -> None:
    server = Replaced(saved({"a": torch.ones(1 << 20)}), 300_000)
    try:
        client = inrush.Client(endpoint_url=server.server.endpoint, no_sign_request=True)
        with pytest.raises(inrush.Changed, match=URI):
            inrush.torch.load(URI, client=client)
    finally:
        server.server.close()
