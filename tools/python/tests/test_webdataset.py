"""WebDataset over inrush: every sample once in each epoch, and pipes that need no command."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Origin, require, tars

webdataset = require("webdataset")

import inrush.webdataset  # noqa: E402
from inrush.webdataset import object_of_command  # noqa: E402

Serve = Callable[..., Origin]

EXPECTED = sorted(f"{at:03}-{sample:03}" for at in range(12) for sample in range(5))


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registers the openers for a test, on a machine where `aws` cannot read anything."""
    aws = tmp_path / "bin/aws"
    aws.parent.mkdir()
    aws.write_text("#!/bin/sh\nexit 1\n")
    aws.chmod(0o755)
    monkeypatch.setenv("PATH", f"{aws.parent}:{os.environ['PATH']}")
    schemes = importlib.import_module("webdataset.gopen").gopen_schemes
    before = dict(schemes)
    inrush.webdataset.register()
    inrush.webdataset.register()
    yield
    schemes.clear()
    schemes.update(before)


def key(sample: dict[str, Any]) -> str:
    """The key of a sample whose members are as they were written."""
    tar, number = map(int, sample["__key__"].split("-"))
    assert sample["txt"] == f"text {tar} {number}".encode() * (number + 1)
    name: str = sample["__key__"]
    return name


@pytest.mark.parametrize("urls", [
    "s3://data/tars/{000..011}.tar",
    "pipe:aws s3 cp --quiet s3://data/tars/{000..011}.tar -",
])
def test_three_epochs_have_every_sample_once(serve: Serve, registered: None, urls: str) -> None:
    serve(tars(12, 5))
    orders = []
    for epoch in range(3):
        dataset = webdataset.WebDataset(urls, shardshuffle=12, seed=epoch, empty_check=False,
                                        nodesplitter=None).map(key)
        orders.append(list(dataset))
        assert sorted(orders[-1]) == EXPECTED
    assert orders[0] != orders[1]


def test_workers_and_nodes_have_every_sample_once(serve: Serve, registered: None,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    require("torch")
    serve(tars(12, 5))
    for _ in range(3):
        seen: list[str] = []
        for rank in range(2):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", "2")
            dataset = webdataset.WebDataset(
                "s3://data/tars/{000..011}.tar", shardshuffle=False, empty_check=False,
                nodesplitter=webdataset.split_by_node).map(key)
            loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=4,
                                          multiprocessing_context="fork")
            seen += list(loader)
        assert sorted(seen) == EXPECTED


def test_the_client_that_is_given_reads(serve: Serve, registered: None,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    origins = [serve({"data/a": name}) for name in (b"one", b"two")]
    # As a worker has it: a client of its own share, made of the one that is given.
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setitem(sys.modules, "torch.utils.data", SimpleNamespace(
        get_worker_info=lambda: SimpleNamespace(id=0, num_workers=2)))
    for turn in range(40):
        client = origins[turn % 2].client()
        # One that is gone leaves its number to the next one.
        with inrush.webdataset.gopen("s3://data/a", client=client) as file:
            assert file.read() == (b"one", b"two")[turn % 2]
            assert file.read() == b""
        first = inrush.webdataset._own(client)
        assert inrush.webdataset._own(client) is first
        del client
    monkeypatch.setitem(sys.modules, "torch.utils.data", SimpleNamespace(
        get_worker_info=lambda: None))
    client = origins[0].client()
    assert inrush.webdataset._own(client) is inrush.webdataset._own(client), "of a rank as well"


def test_other_commands_are_run_as_before(serve: Serve, registered: None) -> None:
    serve({"data/a": b"of the origin"})
    from webdataset.gopen import gopen

    with gopen("pipe:aws s3 cp s3://data/a -") as file:
        assert file.read() == b"of the origin"
    with gopen("pipe:echo of the shell") as file:
        assert file.read() == b"of the shell\n"
    with pytest.raises(io.UnsupportedOperation):
        gopen("s3://data/a", "wb")
    with pytest.raises(FileNotFoundError):
        gopen("s3://data/gone").read()


def test_commands_that_print_one_object() -> None:
    uri = "s3://bucket/a-0001.tar"
    for command in (f"aws s3 cp {uri} -", f"  aws s3 cp --quiet '{uri}' - ", f"s5cmd cat {uri}",
                    f"inrush cat {uri}", f"aws s3 cp {uri} - --only-show-errors",
                    f"s3cmd get {uri} -"):
        assert object_of_command(command) == uri, command
    for command in (f"aws s3 cp {uri} - | gzip -dc", f"aws s3 cp {uri} /tmp/x", f"aws s3 cp {uri}",
                    f"aws s3 cp {uri} - --region x", "aws s3 cp $URI -", f"aws s3 ls {uri}",
                    f"inrush cat {uri} {uri}", "inrush cat", "inrush cat 's3://b/*'",
                    f"cat {uri}", "aws s3 cp 's3://b/a -", "aws s3 cp a -", ""):
        assert object_of_command(command) is None, command
