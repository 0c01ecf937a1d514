"""Every example of the guide's page, as it is printed there."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PROJECT, Origin, forget, require, small_objects, tars

Serve = Callable[..., Origin]

PAGE = (PROJECT / "src/guide/python.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)

#: What the first import of an example needs, and what must hold when it has run.
HEAVY = ("torch", "torchdata", "webdataset", "tensorflow", "ray", "pandas", "pyarrow", "fsspec",
         "safetensors")
OBJECTS = small_objects(25, "bucket/train/")
SAMPLES = sorted(f"{at:03}-{sample:03}" for at in range(4) for sample in range(5))


@pytest.fixture
def served(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A bucket that has what the examples read, and a folder for what they write."""
    monkeypatch.chdir(tmp_path)
    objects = OBJECTS | tars(4, 5, "bucket/tars/")
    if wanted("pandas"):
        frame = require("pandas").DataFrame({"a": range(10), "b": range(10)})
        out = io.BytesIO()
        frame.to_parquet(out)
        objects["bucket/table/part-0.parquet"] = out.getvalue()
    if wanted("safetensors"):
        save, torch = require("safetensors.torch").save, require("torch")
        objects["bucket/model/model.safetensors"] = save({"a": torch.ones(3)})
    if wanted("torch"):
        checkpoint, torch = require("torch.distributed.checkpoint"), require("torch")
        checkpoint.save({"weight": torch.ones(1024, 1024), "step": 7}, no_dist=True,
                        storage_writer=checkpoint.FileSystemWriter(tmp_path / "saved"))
        objects |= {f"bucket/run/step-1000/{path.name}": path.read_bytes()
                    for path in (tmp_path / "saved").iterdir()}
        out = io.BytesIO()
        torch.save({"weight": torch.ones(3)}, out)
        objects["bucket/run/model.pt"] = out.getvalue()
    if wanted("tensorflow"):
        # One record, "record", with the checksums that TensorFlow gives it.
        objects["bucket/records/0"] = bytes.fromhex(RECORD)
    serve(objects)
    yield


RECORD = "06000000000000007369d5377265636f726405de2bfc"


def wanted(name: str) -> bool:
    """Whether the package is there."""
    try:
        require(name)
    except BaseException as error:
        if type(error).__name__ == "Failed":
            raise
        return False
    return True


def test_the_page_has_an_example_of_each_module() -> None:
    text = "\n".join(EXAMPLES)
    for name in ("fsspec", "torch", "torchdata", "webdataset", "tensorflow", "safetensors", "ray",
                 "checkpoint", "sharding"):
        assert f"inrush.{name}" in text
    for example in EXAMPLES:
        assert len(example.splitlines()) < 10 and not re.search(r"^ *#", example, re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_example_runs(served: None, example: str) -> None:
    for name in HEAVY:
        if re.search(rf"\b{name}\b", example):
            require(name)
    if "inrush://" in example:
        fsspec, ours = require("fsspec"), require("inrush.fsspec")
        fsspec.register_implementation("inrush", ours.InrushFileSystem, clobber=True)
    ray: Any = None
    if "inrush.ray" in example:
        ray = require("ray")
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20,
                 _node_ip_address="127.0.0.1", log_to_driver=False)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(example, "src/guide/python.md", "exec"), names)
        check(example, names)
    finally:
        if ray is not None:
            ray.shutdown()
        if "register_s3" in example:
            forget("s3", "s3a")


def check(example: str, names: dict[str, Any]) -> None:
    """What the example leaves must be what the bucket has."""
    if "StreamDataset" in example:
        assert dict(zip(names["uris"], names["contents"], strict=True)).items() <= \
            {f"s3://{path}": data for path, data in OBJECTS.items()}.items()
    elif "TarDataset" in example:
        keys = names["first"]["__key__"] + [key for batch in names["rest"]
                                            for key in batch["__key__"]]
        assert sorted(keys) == SAMPLES
    elif "ObjectDataset" in example:
        uris = [uri for batch in names["batches"] for uri in batch["uri"]]
        assert sorted(uris) == [f"s3://{path}" for path in sorted(OBJECTS)]
    elif "ObjectNode" in example:
        assert set(names["contents"]) <= set(OBJECTS.values())
    elif "read_parquet" in example:
        assert list(names["frame"]["a"]) == list(range(10))
    elif "pyarrow.dataset" in example:
        assert names["table"].num_rows == 10
    elif "register_s3" in example:
        assert names["content"] == OBJECTS["bucket/train/0000.bin"]
    elif "inrush.webdataset" in example:
        assert sorted(names["names"]) == SAMPLES
    elif "inrush.tensorflow" in example:
        assert len(list(names["objects"])) == 2 * len(OBJECTS)
        assert [list(batch.numpy()) for batch in names["batches"]] == [[b"record"] * 2]
    elif "safetensors.open" in example:
        assert names["first"].tolist() == [1, 1] and names["sums"] == {"a": 3}
    elif "inrush.safetensors" in example:
        assert names["weights"]["a"].tolist() == [1, 1, 1]
    elif "inrush.torch.load" in example:
        assert names["state"]["weight"].tolist() == [1, 1, 1]
    elif "inrush.checkpoint" in example:
        assert bool((names["state"]["weight"] == 1).all()) and names["state"]["step"] == 7
    elif "inrush.ray" in example:
        assert sorted(row["length"] for row in names["lengths"]) == \
            sorted(map(len, OBJECTS.values()))
    elif "client.sync" in example:
        assert names["report"]["objects"] == len(names["done"]) == len(OBJECTS)
        for folder in ("data", "mirror"):
            assert Path(folder, "0000.bin").read_bytes() == OBJECTS["bucket/train/0000.bin"]
    elif "read_many" in example:
        assert names["total"] == sum(map(len, OBJECTS.values()))
        if 'share="host"' not in example:
            assert names["first"] == OBJECTS["bucket/train/0000.bin"][:100]
    else:
        assert "inrush.sharding" in example, "an example that nothing checks"
        assert names["order"] == [5, 4, 0, 7] and names["rank"] is None
