"""Data sets of ``tf.data``: objects, and records of TFRecord files.

::

    from inrush.tensorflow import records_dataset

    dataset = records_dataset("s3://bucket/train/", shuffle_seed=42, epochs=3)
    dataset = dataset.map(parse).batch(64).prefetch(2)

Order and parts of an epoch are those of the command's ``--shuffle-seed`` and ``--shard``.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

import tensorflow as tf

from ._client import Elements
from ._places import Listing, Source, listing
from ._stream import Plan, Stream, on_this_host, this_rank
from .sharding import Order, Shard

if TYPE_CHECKING:
    from . import Client

__all__ = ["objects_dataset", "records", "records_dataset"]

#: Most bytes of a record: a length beyond it is damage.
RECORD_BYTES_MAX = 2**31 - 1

_MASK_DELTA = 0xA282EAD8


def objects_dataset(source: Source = (), *, manifest: str | None = None,
                    shuffle_seed: int | None = None, shard: Shard | tuple[int, int] | None = None,
                    epochs: int = 1, first_epoch: int = 0, drop_uneven: bool = False,
                    client: Client | None = None) -> Any:
    """Objects in a stream: pairs of the address and the bytes, both of ``tf.string``.

    :param source: ``s3://BUCKET/PREFIX/``, an object, or several of them.
    :param manifest: address or path of a ManifestFile of SageMaker, instead of `source`.
    :param shuffle_seed: shuffles every epoch; None is key order.
    :param shard: the part of this process; None is found by its launcher's variables.
    :param epochs: how many epochs follow each other, each in its own order.
    :param first_epoch: the first of them, counted from 0.
    :param drop_uneven: all processes have the same number of objects, and a few are left out.
    :param client: what reads; None is `inrush.default_client()`.
    :returns: a ``tf.data.Dataset``. An object that cannot be read raises ``tf.errors`` when it is
        its turn.
    :raises FileNotFoundError: there are no objects.
    :raises ValueError: `drop_uneven` would leave out all objects, since there are fewer of them
        than processes.
    :raises inrush.Error: the listing failed.
    """
    client, objects, part = _begin(client, source, manifest, "", shard, drop_uneven)

    def samples() -> Iterator[tuple[Any, bytes]]:
        for epoch in range(first_epoch, first_epoch + epochs):
            stream = Stream(client, Plan(objects, seed=shuffle_seed, epoch=epoch, shard=part,
                                         drop_uneven=drop_uneven))
            try:
                for sample in stream:
                    uri = cast(str, sample["uri"]).encode("utf-8", "surrogateescape")
                    yield uri, sample["data"]
            finally:
                stream.close()

    scalar = tf.TensorSpec(shape=(), dtype=tf.string)
    return _dataset(samples, (scalar, scalar))


def records_dataset(source: Source = (), *, manifest: str | None = None,
                    suffix: str | tuple[str, ...] = "", compression: Literal["", "GZIP"] = "",
                    shuffle_seed: int | None = None, shard: Shard | tuple[int, int] | None = None,
                    epochs: int = 1, first_epoch: int = 0, drop_uneven: bool = False,
                    client: Client | None = None) -> Any:
    """Records of TFRecord files, one file after the other, serialized, of ``tf.string``.

    Files are shuffled and divided; the records of a file keep their order.

    :param suffix: how the keys of files end below a prefix; other objects are left out.
    :param compression: ``GZIP`` where the files are compressed.
    :returns: a ``tf.data.Dataset``. Damage raises ``tf.errors`` when it is its turn.

    The other parameters and the errors are those of `objects_dataset`.
    """
    client, files, part = _begin(client, source, manifest, suffix, shard, drop_uneven)

    def all_records() -> Iterator[bytes]:
        for epoch in range(first_epoch, first_epoch + epochs):
            plan = Plan(files, seed=shuffle_seed, epoch=epoch, shard=part, drop_uneven=drop_uneven)
            for at in plan.order():
                with client.open(files[at], sequential=True) as file:
                    yield from records(cast(BinaryIO, file), files.uri(at), compression)

    scalar = tf.TensorSpec(shape=(), dtype=tf.string)
    return _dataset(all_records, scalar)


def records(file: BinaryIO, name: str, compression: Literal["", "GZIP"] = "") -> Iterator[bytes]:
    """The records of one TFRecord file; one of them is in memory at a time.

    The checksum of each length is checked, and with the package ``google_crc32c`` those of the
    records, too.

    :raises ValueError: the file is damaged; the message has its name and the byte.
    """
    check = _crc32c_of_records()
    if compression == "GZIP":
        file = cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))
    at = 0
    try:
        while head := _exactly(file, 12):
            length, length_checksum = struct.unpack("<QI", head) if len(head) == 12 else (0, 0)
            if len(head) < 12 or _masked(_crc32c(head[:8])) != length_checksum:
                raise ValueError(f"{name}: the length of a record is damaged at byte {at}")
            if length > RECORD_BYTES_MAX:
                raise ValueError(f"{name}: the record at byte {at} has {length} bytes, "
                                 f"at most {RECORD_BYTES_MAX} are read")
            record, tail = _exactly(file, length), _exactly(file, 4)
            if len(record) < length or len(tail) < 4:
                raise ValueError(f"{name}: it ends within the record at byte {at}")
            if check is not None and _masked(check(record)) != int.from_bytes(tail, "little"):
                raise ValueError(f"{name}: the record at byte {at} is damaged")
            yield record
            at += 16 + length
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{name}: behind byte {at}: {error}") from error


def _dataset(samples: Callable[[], Iterator[Any]], signature: Any) -> Any:
    """A data set of what a generator yields. Its error is raised by each step after it: who
    catches it shall not take the end of the generator for that of the data."""
    return tf.data.Dataset.from_generator(lambda: Elements(None, samples()),
                                          output_signature=signature)


def _begin(client: Client | None, source: Source, manifest: str | None,
           suffix: str | tuple[str, ...], shard: Shard | tuple[int, int] | None,
           drop_uneven: bool) -> tuple[Client, Listing, Shard]:
    """
    :raises ValueError: `drop_uneven` would leave out everything.
    """
    client = on_this_host(client)
    part = this_rank() if shard is None else shard if isinstance(shard, Shard) else Shard(*shard)
    kept = listing(client, source, manifest=manifest, suffix=suffix)
    Order(len(kept), shard=part, drop_uneven=drop_uneven)
    return client, kept, part


def _exactly(file: BinaryIO, length: int) -> bytes:
    """`length` bytes, or fewer at the end of the file."""
    data = file.read(length)
    while 0 < len(data) < length:
        more = file.read(length - len(data))
        if not more:
            break
        data += more
    return data


def _masked(checksum: int) -> int:
    """As TFRecord stores a CRC-32C."""
    return (((checksum >> 15) | (checksum << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


def _crc32c(data: bytes) -> int:
    """For lengths alone: it takes a step of Python for each byte."""
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum = _TABLE[(checksum ^ byte) & 0xFF] ^ (checksum >> 8)
    return checksum ^ 0xFFFFFFFF


def _crc32c_of_records() -> Callable[[bytes], int] | None:
    try:
        import google_crc32c
    except ImportError:
        return None
    return cast(Callable[[bytes], int], google_crc32c.value)
