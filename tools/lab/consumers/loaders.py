#!/usr/bin/env python3
"""Data loaders of training programs over a folder.

    loaders.py write KIND FOLDER BYTES                writes samples of about BYTES in all
    loaders.py read KIND FOLDER EPOCHS [BEHIND...]    reads all of them

images: torchvision's ImageFolder in torch's DataLoader with 4 workers, shuffled; each image is
decoded. files: the same, but the loader only reads the bytes of its file. webdataset: tar files by
WebLoader with 4 workers. tfrecords: TFRecordDataset of TensorFlow, 4 files at the same time.

Before each epoch the pages of all files in FOLDER and in BEHIND, which has what is behind it, go
out of the page cache. One line of JSON for what was written, and one for each epoch: its seconds,
and the name and CRC-32 of each sample. It runs with the Python of its own environment.
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

WORKERS = 4
BATCH = 64
PIXELS = (500, 375)
SHAPES = (136, 102)
"""A photograph of the usual size in ImageNet, with detail that makes its JPEG 100 kB."""
CLASSES = 16
RECORD_BYTES = 100_000
SHARD_BYTES = 64 << 20
Samples = list[tuple[str, int]]


def drop_pages(folders: Iterable[Path]) -> None:
    """Takes the files out of the page cache, and nothing else: other programs run here, too."""
    # Pages that are not written yet stay.
    os.sync()
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def write_images(folder: Path, size: int, is_decoded: bool) -> Samples:
    """Photographs in folders of their classes."""
    from PIL import Image
    chance, samples = random.Random("images"), Samples()
    while size > 0:
        noise = Image.frombytes("RGB", SHAPES, chance.randbytes(3 * SHAPES[0] * SHAPES[1]))
        name = f"class{len(samples) % CLASSES:02}/{len(samples):06}.jpeg"
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        noise.resize(PIXELS, Image.Resampling.BICUBIC).save(path, quality=90)
        size -= path.stat().st_size
        with Image.open(path) as image:
            samples.append((name, crc32(image.tobytes() if is_decoded else path.read_bytes())))
    return samples


def shards(size: int) -> Iterator[tuple[int, list[tuple[str, bytes]]]]:
    """The records of each file, by name."""
    chance, count = random.Random("records"), SHARD_BYTES // RECORD_BYTES
    for number in range(max(size // SHARD_BYTES, WORKERS)):
        yield number, [(f"{number:04}-{index:04}", chance.randbytes(RECORD_BYTES))
                       for index in range(count)]


def write_tars(folder: Path, size: int) -> Samples:
    """Tar files of samples with one field."""
    samples = Samples()
    for number, records in shards(size):
        with tarfile.open(folder / f"shard-{number:04}.tar", "w") as archive:
            for name, data in records:
                member = tarfile.TarInfo(f"{name}.bin")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
                samples.append((name, crc32(data)))
    return samples


def write_tfrecords(folder: Path, size: int) -> Samples:
    """Files of TensorFlow's, each record with its name in front."""
    import tensorflow
    samples = Samples()
    for number, records in shards(size):
        with tensorflow.io.TFRecordWriter(str(folder / f"{number:04}.tfrecord")) as writer:
            for name, data in records:
                writer.write(name.encode() + data)
                samples.append((name, crc32(data)))
    return samples


def with_workers(dataset: Any, batch_size: int | None, **more: Any) -> Any:
    """What brings samples in processes, which stay for all epochs."""
    from torch.utils.data import DataLoader
    return DataLoader(dataset, batch_size=batch_size, num_workers=WORKERS,
                      persistent_workers=True, collate_fn=list if batch_size else None, **more)


def images(folder: Path, is_decoded: bool) -> Callable[[], Iterable[tuple[str, int]]]:
    """An image folder, each time in another order."""
    from torchvision.datasets import ImageFolder
    from torchvision.datasets.folder import default_loader

    class Named(ImageFolder):  # type: ignore[misc]
        """Returns the name of what it loads, too."""

        def __getitem__(self, index: int) -> tuple[str, int]:
            found, label = super().__getitem__(index)
            name = os.path.relpath(self.samples[index][0], self.root)
            if not name.startswith(f"{self.classes[label]}/"):
                raise ValueError(f"{name} is not of {self.classes[label]}")
            return name, crc32(found.tobytes() if is_decoded else found)

    loader = default_loader if is_decoded else lambda path: Path(path).read_bytes()
    # Seeds are those of torch, which differ from epoch to epoch.
    batches = with_workers(Named(str(folder), loader=loader), BATCH, shuffle=True)
    return lambda: (sample for batch in batches for sample in batch)


def named(sample: dict[str, Any]) -> tuple[str, int]:
    """A sample of webdataset."""
    return sample["__key__"], crc32(sample["bin"])


def tars(folder: Path) -> Callable[[], Iterable[tuple[str, int]]]:
    """Tar files, divided among the workers."""
    import webdataset
    paths = sorted(str(path) for path in folder.glob("*.tar"))
    dataset = webdataset.WebDataset(paths, shardshuffle=len(paths)).map(named).batched(
        BATCH, collation_fn=list)
    batches = webdataset.WebLoader(dataset, batch_size=None, num_workers=WORKERS,
                                   persistent_workers=True)
    return lambda: (sample for batch in batches for sample in batch)


def tfrecords(folder: Path) -> Callable[[], Iterable[tuple[str, int]]]:
    """Records of several files at the same time."""
    import tensorflow
    paths = sorted(str(path) for path in folder.glob("*.tfrecord"))
    dataset = tensorflow.data.TFRecordDataset(paths, num_parallel_reads=WORKERS)
    head = len("0000-0000")

    def samples() -> Iterator[tuple[str, int]]:
        for record in dataset.as_numpy_iterator():
            yield record[:head].decode(), crc32(memoryview(record)[head:])
    return samples


WRITERS: dict[str, Callable[[Path, int], Samples]] = {
    "images": lambda folder, size: write_images(folder, size, True),
    "files": lambda folder, size: write_images(folder, size, False),
    "webdataset": write_tars, "tfrecords": write_tfrecords}
READERS: dict[str, Callable[[Path], Callable[[], Iterable[tuple[str, int]]]]] = {
    "images": lambda folder: images(folder, True), "files": lambda folder: images(folder, False),
    "webdataset": tars, "tfrecords": tfrecords}


def report(started: float, samples: Iterable[tuple[str, int]]) -> None:
    """One line."""
    found = list(samples)
    seconds = time.monotonic() - started
    print(json.dumps({"seconds": seconds, "samples": found}), flush=True)


def main() -> None:
    """Writes or reads."""
    what, kind, folder, number = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    if what == "write":
        folder.mkdir(parents=True)
        report(time.monotonic(), WRITERS[kind](folder, number))
        return
    samples = READERS[kind](folder)
    for _ in range(number):
        drop_pages([folder, *map(Path, sys.argv[5:])])
        report(time.monotonic(), samples())


if __name__ == "__main__":
    main()
