"""The data of `tools/bench.py python`: images, tars of images, shards of them, tensors,
checkpoints, one large object.

There are sets of several sizes, each below a prefix of its own, so that a slow reader reads all of
a small set where a fast one reads all of a large one.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import random
import struct
import tarfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab.install import TOOLS
from lab.loops.checkpoint import COLUMNS, ROWS
from lab.process import LabError, must

MADE, FILES = "made", "files"
"""The buckets: of objects that the origin makes up, and of files."""
IMAGE_BYTES = 39_000
TAR_SAMPLES = 1_640
"""64 MiB of such images."""
MODULUS = 1 << 64
TENSOR_BYTES = 64 << 20
MODEL_FILES = 4
CHECKPOINT_TENSOR_BYTES = ROWS * COLUMNS * 4
STAMP_EVERY = 4 << 10
CHUNK = 16 << 20


@dataclass(frozen=True)
class Set:
    """Objects below one prefix, and what is in them."""

    bucket: str
    prefix: str
    keys: Sequence[str]
    samples: int
    bytes: int
    digest: Callable[[str], int]
    """The sum of the CRC-32 of all samples; asks the server of this endpoint if it has to."""


@dataclass(frozen=True)
class Data:
    """All sets, the smallest first, and the origin's options for them."""

    images: Sequence[Set]
    tars: Sequence[Set]
    shards: Sequence[Set]
    """As many samples as `tars` has, in the format of mosaicml-streaming."""
    tensors: Sequence[Set]
    checkpoint: Sequence[Set]
    array: Sequence[Set]
    words: Sequence[str | Path]


def fetched_digest(bucket: str, keys: Sequence[str]) -> Callable[[str], int]:
    """The digest of objects whose bytes only the server knows; asked for once."""
    @cache
    def digest(endpoint: str) -> int:
        connection = http.client.HTTPConnection(endpoint.removeprefix("http://"))
        total = 0
        for key in keys:
            connection.request("GET", f"/{bucket}/{key}")
            answer = connection.getresponse()
            data = answer.read()
            if answer.status != 200:
                raise LabError(f"the origin answers {answer.status} for {key}")
            total += zlib.crc32(data)
        connection.close()
        return total % MODULUS
    return digest


def images(counts: Sequence[int]) -> tuple[list[Set], list[str]]:
    """Synthetic objects, and the origin's options for them."""
    sets, words = [], []
    for count in counts:
        prefix = f"images-{count}/"
        keys = [f"{prefix}{number:06}.bin" for number in range(count)]
        sets.append(Set(MADE, prefix, keys, count, count * IMAGE_BYTES,
                        fetched_digest(MADE, keys)))
        words += ["--synthetic", f"{MADE}/{prefix}:{count}:{IMAGE_BYTES}"]
    return sets, words


def array(size: int) -> tuple[Set, list[str]]:
    """One synthetic object, and the origin's options for it."""
    key = "array/000000.bin"
    made = Set(MADE, "array/", [key], 1, size, fetched_digest(MADE, [key]))
    return made, ["--synthetic", f"{MADE}/array/:1:{size}"]


def write_tar(path: Path, number: int) -> int:
    """A tar of images; the sum of their CRC-32."""
    source, total = random.Random(number), 0
    with tarfile.open(path, "w") as tar:
        for sample in range(TAR_SAMPLES):
            data = source.randbytes(IMAGE_BYTES)
            total += zlib.crc32(data)
            info = tarfile.TarInfo(f"{number:03}-{sample:06}.jpg")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return total


def link(source: Path, path: Path) -> None:
    """A second name of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.hardlink_to(source)


def of_samples(prefix: str, keys: Sequence[str], sums: Sequence[int]) -> Set:
    """A set of tars, whose digests are known."""
    total = sum(sums) % MODULUS
    samples = len(sums) * TAR_SAMPLES
    return Set(FILES, prefix, keys, samples, samples * IMAGE_BYTES, lambda _endpoint: total)


def tars(root: Path, counts: Sequence[int]) -> tuple[list[Set], list[int]]:
    """Tars in folders; also the digest of each tar."""
    most = max(counts)
    bucket = root / FILES
    (bucket / "all").mkdir(parents=True, exist_ok=True)
    sums = [write_tar(bucket / f"all/{number:03}.tar", number) for number in range(most)]
    sets = []
    for count in counts:
        prefix = f"tars-{count}/"
        keys = [f"{prefix}{number:03}.tar" for number in range(count)]
        for number, key in enumerate(keys):
            link(bucket / f"all/{number:03}.tar", bucket / key)
        sets.append(of_samples(prefix, keys, sums[:count]))
    return sets, sums


WRITE_SHARD = """
import sys, tarfile
from streaming import MDSWriter
with MDSWriter(out=sys.argv[2], columns={"image": "bytes"}, size_limit=1 << 31) as writer:
    with tarfile.open(sys.argv[1]) as tar:
        for member in tar:
            writer.write({"image": tar.extractfile(member).read()})
"""


def shards(root: Path, counts: Sequence[int], sums: Sequence[int], python: Path) -> list[Set]:
    """Images of the tars as shards of mosaicml-streaming, one for each tar, from its own writer."""
    bucket, sets = root / FILES, []
    listed = []
    for number in range(max(counts)):
        made = bucket / f"mds/{number:03}"
        must([python, "-c", WRITE_SHARD, bucket / f"all/{number:03}.tar", made], seconds=120)
        index = json.loads((made / "index.json").read_text())
        shard, = index["shards"]
        shard["raw_data"]["basename"] = f"shard.{number:05}.mds"
        listed.append(shard)
    for count in counts:
        prefix = f"mds-{count}/"
        for number in range(count):
            made, = (bucket / f"mds/{number:03}").glob("shard.*")
            link(made, bucket / prefix / f"shard.{number:05}.mds")
        (bucket / prefix / "index.json").write_text(
            json.dumps({"version": 2, "shards": listed[:count]}))
        sets.append(of_samples(prefix, [], sums[:count]))
    return sets


def tensors(root: Path, size: int) -> Set:
    """Safetensors files of tensors of 64 MiB, and their index; the bytes of each depend on its
    place."""
    folder, total = root / FILES / "model", 0
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"model-{file + 1:05}-of-{MODEL_FILES:05}.safetensors" for file in range(MODEL_FILES)]
    each = max(1, size // TENSOR_BYTES // MODEL_FILES)
    chunk = bytearray(random.Random(1).randbytes(CHUNK))
    weights = {}
    for name in names:
        numbers = range(len(weights), len(weights) + each)
        header = json.dumps({f"layer.{number:03}": {
            "dtype": "BF16", "shape": [TENSOR_BYTES // 2 // 1024, 1024],
            "data_offsets": [at * TENSOR_BYTES, (at + 1) * TENSOR_BYTES]}
            for at, number in enumerate(numbers)}).encode()
        header += b" " * (-len(header) % 8)
        with (folder / name).open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            for number in numbers:
                weights[f"layer.{number:03}"] = name
                checksum = 0
                for offset in range(0, TENSOR_BYTES, CHUNK):
                    for at in range(0, CHUNK, STAMP_EVERY):
                        struct.pack_into("<QQ", chunk, at, number, offset + at)
                    file.write(chunk)
                    checksum = zlib.crc32(chunk, checksum)
                total += checksum
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weights}))
    return Set(FILES, "model/", [f"model/{name}" for name in names], len(weights),
               len(weights) * TENSOR_BYTES, lambda _endpoint: total % MODULUS)


WRITE_CHECKPOINT = """
import json, sys, warnings, zlib
import torch
import torch.distributed.checkpoint as dcp
sys.path.append(sys.argv[1])
from lab.loops.checkpoint import COLUMNS, ROWS
warnings.simplefilter("ignore")
torch.manual_seed(1)
state = {f"layer.{number:03}": torch.rand(ROWS, COLUMNS) for number in range(int(sys.argv[3]))}
dcp.save(state, checkpoint_id=sys.argv[2])
print(json.dumps([sum(zlib.crc32(tensor.numpy()) for tensor in state.values()),
                  sum(tensor.nbytes for tensor in state.values()), list(state)]))
"""


def checkpoint(root: Path, size: int, python: Path) -> Set:
    """What PyTorch saves: one file of tensors of 11 MB, and their metadata."""
    count = size // CHECKPOINT_TENSOR_BYTES
    printed = must([python, "-c", WRITE_CHECKPOINT, TOOLS, root / FILES / "checkpoint", str(count)],
                   seconds=300)
    total, length, names = json.loads(printed.splitlines()[-1])
    # Its readers ask by the names of tensors.
    return Set(FILES, "checkpoint/", names, count, length, lambda _endpoint: total % MODULUS)


def write(root: Path, workloads: Sequence[str], *, image_counts: Sequence[int],
          tar_counts: Sequence[int], large_bytes: int, python: Path, has_mds: bool) -> Data:
    """The sets of these workloads, written by this interpreter, which may have
    mosaicml-streaming."""
    os.makedirs(root / FILES, exist_ok=True)
    found, words = images(image_counts) if "images" in workloads else ([], [])
    tar_sets, sums = tars(root, tar_counts) if "tars" in workloads else ([], [])
    mds = shards(root, tar_counts, sums, python) if tar_sets and has_mds else []
    model = [tensors(root, large_bytes // 2)] if "tensors" in workloads else []
    saved = [checkpoint(root, large_bytes // 4, python)] if "checkpoint" in workloads else []
    large = []
    if "array" in workloads:
        made, more = array(large_bytes)
        large, words = [made], [*words, *more]
    return Data(found, tar_sets, mds, model, saved, large, [*words, "--root", root])
