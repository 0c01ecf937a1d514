"""Checkpoints of torch.distributed.checkpoint, and files that are none."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Origin, require

torch = require("torch")
dcp = require("torch.distributed.checkpoint")

import inrush.checkpoint  # noqa: E402
from inrush.checkpoint import StorageReader, StorageWriter  # noqa: E402

Serve = Callable[..., Origin]
URI = "s3://data/run/step-1"


def state() -> dict[str, Any]:
    """Tensors of many types and layouts, large and small, and what is no tensor."""
    torch.manual_seed(1)
    tall = torch.randn(700, 1000)
    made: dict[str, Any] = {
        "large": tall, "long": torch.randint(0, 1 << 40, (500_000,)),
        "turned": torch.randn(1100, 600).t(), "every_second": torch.randn(900, 900)[:, ::2],
        "half": torch.randn(1200, 1200, dtype=torch.bfloat16),
        "eight": torch.randint(0, 255, (1500, 1500), dtype=torch.uint8),
        "deep": torch.randn(3, 5, 70, 400), "scalar": torch.tensor(2.5),
        "none": torch.zeros(0, 4), "bool": torch.tensor([True, False]),
        "step": 17, "words": "of a run"}
    return made | {f"layer.{at}": torch.full((at + 1, 3), float(at)) for at in range(100)}


def save(folder: Path, made: dict[str, Any], **options: Any) -> dict[str, bytes]:
    """The objects of a checkpoint."""
    dcp.save(made, storage_writer=dcp.FileSystemWriter(folder, **options), no_dist=True)
    return {f"data/run/step-1/{path.name}": path.read_bytes() for path in folder.iterdir()}


def emptied(made: dict[str, Any]) -> dict[str, Any]:
    """The tensors of `made` as zeros, in memory that is packed, and None for all else."""
    return {name: torch.zeros(one.shape, dtype=one.dtype) if torch.is_tensor(one) else None
            for name, one in made.items()}


def alike(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """All the same."""
    for name, one in expected.items():
        if torch.is_tensor(one):
            assert found[name].dtype == one.dtype and torch.equal(found[name], one), name
        else:
            assert found[name] == one, name


@pytest.mark.parametrize("options", [{}, {"single_file_per_rank": False}, {"thread_count": 3}])
def test_a_checkpoint_is_as_it_was_saved(
        serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        options: dict[str, Any]) -> None:
    made = state()
    serve(save(tmp_path / "saved", made, **options))
    loaded = emptied(made)
    memory = {name: one.data_ptr() for name, one in loaded.items() if torch.is_tensor(one)}
    straight: list[int] = []
    fill = inrush.checkpoint.fill

    def noted(client: Any, fillings: Any, device: Any) -> None:
        kept = list(fillings)
        straight.extend(filling.make().data_ptr() for filling in kept)
        fill(client, kept, device)

    monkeypatch.setattr(inrush.checkpoint, "fill", noted)
    dcp.load(loaded, storage_reader=StorageReader(URI), no_dist=True)
    alike(loaded, made)
    # What was saved with its columns one after the other passes through memory of its own.
    large = {"large", "long", "every_second", "half", "eight", "deep"}
    assert {name for name, at in memory.items() if at in straight} == large


def test_targets_of_another_layout_and_type(serve: Serve, tmp_path: Path) -> None:
    made = state()
    serve(save(tmp_path / "saved", made))
    targets = {"large": torch.zeros(1000, 700).t(), "half": torch.zeros(1200, 1200),
               "turned": torch.zeros(600, 1100), "eight": torch.zeros(1500, 3000,
                                                                     dtype=torch.uint8)[:, ::2]}
    dcp.load(targets, storage_reader=StorageReader(URI), no_dist=True)
    for name, one in targets.items():
        assert torch.equal(one, made[name].to(one.dtype)), name


def test_a_part_of_a_tensor_is_read_alone(serve: Serve, tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"rows": torch.randn(4000, 1000), "blocks": torch.randn(4, 500, 2000)}
    serve(save(tmp_path / "saved", made))
    read: list[int] = []
    original = inrush.checkpoint.fill

    def noted(client: Any, fillings: Any, device: Any) -> None:
        kept = list(fillings)
        read.extend(length for filling in kept for _, length in filling.ranges)
        original(client, kept, device)

    monkeypatch.setattr(inrush.checkpoint, "fill", noted)
    reader = StorageReader(URI)
    metadata = reader.read_metadata()
    reader.set_up_storage_reader(metadata, True)
    targets = {"rows": torch.zeros(1000, 1000), "blocks": torch.zeros(4, 100, 2000)}
    offsets = {"rows": (2000, 0), "blocks": (0, 300, 0)}
    items = [part_of(metadata, name, offsets[name], target) for name, target in targets.items()]
    reader.read_data(dcp.LoadPlan(items), Planner(targets)).wait()
    assert torch.equal(targets["rows"], made["rows"][2000:3000])
    assert torch.equal(targets["blocks"], made["blocks"][:, 300:400])
    assert sum(read) == sum(target.numel() * 4 for target in targets.values())
    # Columns that are too short to be requested one by one come with what is between.
    target = torch.zeros(4000, 10)
    columns = part_of(metadata, "rows", (0, 20), target)
    reader.read_data(dcp.LoadPlan([columns]), Planner({"rows": target})).wait()
    assert torch.equal(target, made["rows"][:, 20:30])


def part_of(metadata: Any, name: str, offsets: tuple[int, ...], target: Any) -> Any:
    """What a planner asks for of a tensor."""
    index = next(index for index in metadata.storage_data if index.fqn == name)
    return dcp.planner.ReadItem(
        type=dcp.planner.LoadItemType.TENSOR, dest_index=index,
        dest_offsets=torch.Size([0] * target.dim()), storage_index=index,
        storage_offsets=torch.Size(offsets), lengths=target.size())


class Planner(dcp.DefaultLoadPlanner):  # type: ignore[misc]
    """Gives these tensors."""

    def __init__(self, targets: dict[str, Any]) -> None:
        super().__init__()
        self._targets = targets

    def resolve_tensor(self, read_item: Any) -> Any:
        return self._targets[read_item.dest_index.fqn]

    def commit_tensor(self, read_item: Any, tensor: Any) -> None:
        assert tensor.data_ptr() == self._targets[read_item.dest_index.fqn].data_ptr()


class Runs:
    """Is run when it is unpickled as anything is."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("/tmp/inrush-ran",)


class Dotted:
    """Is run when it is unpickled by a name with a dot."""

    def __reduce_ex__(self, _: Any) -> Any:
        return _mkdir, ("/tmp/inrush-ran",)


def _mkdir(_: str) -> None:
    raise AssertionError("it ran")


@pytest.mark.parametrize("data, words", [
    (b"", "no metadata of a checkpoint"), (b"nothing", "no metadata of a checkpoint"),
    (pickle.dumps({"a": 1}), "but dict"), (pickle.dumps(Runs()), "posix.mkdir"),
    (pickle.dumps(Dotted()), "_mkdir"),
    (b"\x80\x04\x8c\x27torch.distributed.checkpoint.filesystem\x8c\x09os.system\x93.",
     "os.system")])
def test_metadata_run_no_code(serve: Serve, data: bytes, words: str) -> None:
    serve({"data/run/step-1/.metadata": data})
    with pytest.raises(ValueError, match=words):
        StorageReader(URI).read_metadata()
    assert not os.path.exists("/tmp/inrush-ran")


def test_what_is_missing_is_named(serve: Serve, tmp_path: Path) -> None:
    made = {"large": torch.randn(700, 1000), "small": torch.ones(3)}
    saved = save(tmp_path / "saved", made, single_file_per_rank=False)
    serve({name: data for name, data in saved.items() if not name.endswith("__0_1.distcp")})
    with pytest.raises(dcp.api.CheckpointException, match="__0_1.distcp") as caught:
        dcp.load(emptied(made), storage_reader=StorageReader(URI), no_dist=True)
    assert any(isinstance(error, inrush.NotFound)
               for error, _ in caught.value.failures.values())
    with pytest.raises(inrush.NotFound, match="no folder of a checkpoint") as gone:
        StorageReader("s3://data/run/step-2").read_metadata()
    assert gone.value.uri == "s3://data/run/step-2/.metadata"
    for wrong in ("/tmp/run", "gs://data/run"):
        with pytest.raises(ValueError, match="s3://"):
            StorageReader(wrong)
        assert not StorageReader.validate_checkpoint_id(wrong)
    assert StorageReader.validate_checkpoint_id(URI)


def test_a_file_that_is_cut_or_damaged(serve: Serve, tmp_path: Path) -> None:
    made = {"large": torch.randn(700, 1000), "small": torch.ones(3)}
    saved = save(tmp_path / "saved", made)
    name = next(name for name in saved if name.endswith(".distcp"))
    origin = serve(saved | {name: saved[name][:-1000]})
    del origin
    with pytest.raises(dcp.api.CheckpointException, match="ends at byte"):
        dcp.load(emptied(made), storage_reader=StorageReader(URI), no_dist=True)
    serve(saved | {name: bytes(len(saved[name]))})
    with pytest.raises(dcp.api.CheckpointException, match="cannot be loaded"):
        dcp.load(emptied(made), storage_reader=StorageReader(URI), no_dist=True)


def test_another_shape_is_refused(serve: Serve, tmp_path: Path) -> None:
    serve(save(tmp_path / "saved", {"large": torch.randn(700, 1000)}))
    reader = StorageReader(URI)
    metadata = reader.read_metadata()
    reader.set_up_storage_reader(metadata, True)
    item = part_of(metadata, "large", (0, 0), torch.zeros(700, 1000))
    with pytest.raises(ValueError, match="shape"):
        reader.read_data(dcp.LoadPlan([item]), Planner({"large": torch.zeros(5, 5)}))


def test_it_only_reads() -> None:
    with pytest.raises(NotImplementedError, match="only reads"):
        StorageWriter("s3://data/run")
    assert not StorageWriter.validate_checkpoint_id(URI)
