"""A file system for fsspec: pandas, pyarrow, dask, zarr and others read objects through inrush.

Installing the package registers the protocol ``inrush``::

    pandas.read_parquet("inrush://bucket/table.parquet")

`register_s3` has ``s3://`` addresses read through inrush as well. It only reads. It keeps no
listings: what it says is what the bucket has at that moment.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

from fsspec import register_implementation
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractFileSystem, _Cached
from fsspec.utils import isfilelike

from . import _jobs
from ._stream import on_this_host

if TYPE_CHECKING:
    from . import Client, File, ObjectInfo

__all__ = ["InrushFileSystem", "register_s3"]

#: What `get_file` has in memory of an object, in bytes.
PIECE_BYTES = 16 << 20
#: How many objects are asked about at the same time.
ASKED_MAX = 16

#: How addresses begin.
_PROTOCOLS = ("inrush", "s3", "s3a")

#: Options of s3fs that mean the same here, and their names.
_OF_S3FS = {"anon": "no_sign_request", "endpoint_url": "endpoint_url", "profile": "profile"}
#: Options of s3fs that hold keys: they would be in every pickle of the file system.
_KEYS = ("key", "secret", "token", "username", "password")
#: Options of s3fs, and of fsspec for any file system, that say nothing about what is read.
_IGNORED = ("asynchronous", "auto_mkdir", "autocommit", "batch_size", "block_size",
            "cache_options", "cache_regions", "cache_type", "compression", "config_kwargs",
            "default_block_size", "default_cache_type", "default_fill_cache", "expand",
            "fill_cache", "fixed_upload_size", "listings_expiry_time", "loop", "max_concurrency",
            "max_paths", "s3_additional_kwargs", "session", "skip_instance_cache", "use_ssl",
            "use_listings_cache", "version_aware")


class _Instances(_Cached):  # type: ignore[misc,unused-ignore]
    """Instances by their options. One over a client that was given is not kept: fsspec knows it by
    its text, which another client has as well, and that may be closed."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if options.get("client") is not None:
            options["skip_instance_cache"] = True
        return super().__call__(*args, **options)


class InrushFileSystem(
        AbstractFileSystem, metaclass=_Instances):  # type: ignore[misc,unused-ignore]
    """Buckets as folders, read-only: ``BUCKET/KEY``, every key taken literally.

    A key with a slash at its end cannot be named, as elsewhere in fsspec.
    """

    protocol: Any = ("inrush",)
    root_marker = ""
    async_impl = False
    #: Two processes never share an engine; fsspec makes another one after a fork.
    cachable = True

    def __init__(self, *, client: Client | None = None, **options: Any) -> None:
        """
        :param client: what reads. Without it, one is made of the options, which are those of
            `inrush.Client`; ``anon``, ``client_kwargs`` and others of s3fs are understood. Without
            options it is `inrush.default_client()`.
        :raises ValueError: an option holds a key: give it in the environment or in a profile.
        :raises TypeError: `inrush.Client` has no such option.
        """
        super().__init__(**{name: options[name] for name in _IGNORED if name in options})
        self._given, self._translated = client, _translated(options)
        self._client = self._made()

    def _made(self) -> Client:
        from . import Client as Made

        made = self._given
        if made is None and self._translated:
            made = Made(**self._translated)
        return on_this_host(made)

    @property
    def client(self) -> Client:
        """What reads. One that was closed is made again, unless it was given: fsspec keeps file
        systems for whoever asks next."""
        if self._given is None and self._client.closed:
            self._client = self._made()
        return self._client

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        # Errors name objects by s3://, whatever the address was; no bucket has a colon.
        for protocol in _PROTOCOLS:
            if path.startswith(f"{protocol}://"):
                path = path[len(protocol) + 3:]
                break
        return path.rstrip("/")

    def _uri(self, path: str) -> str:
        return f"s3://{path}"

    def _entry(self, info: ObjectInfo) -> dict[str, Any]:
        bucket, _, key = info.uri[5:].partition("/")
        # A mark of a folder: an object of no bytes whose key ends in a slash.
        mark = key.endswith("/") and info.size == 0
        name = f"{bucket}/{key}"
        return {"name": name.removesuffix("/") if mark else name, "Key": f"{bucket}/{key}",
                "size": info.size, "type": "directory" if mark else "file", "ETag": info.etag,
                "LastModified": info.last_modified}

    @staticmethod
    def _folder(name: str) -> dict[str, Any]:
        # One slash: what is before it may be an empty name.
        name = name.removesuffix("/")
        return {"name": name, "Key": name, "size": 0, "type": "directory"}

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        """What is known of a file or a folder: name, size in bytes, type, ETag, LastModified.

        :raises FileNotFoundError: there is neither.
        :raises inrush.Error: a request failed.
        """
        path = self._strip_protocol(path)
        if not path:
            return self._folder("")
        if "/" in path:
            try:
                return self._entry(self.client.stat(self._uri(path)))
            except FileNotFoundError:
                pass
        for _ in self.client.list(f"{self._uri(path)}/", recursive=False):
            return self._folder(path)
        if "/" not in path:
            # An empty bucket; the listing of one that does not exist fails.
            return self._folder(path)
        try:
            # The listing of an empty folder leaves out its mark.
            return self._entry(self.client.stat(f"{self._uri(path)}/"))
        except FileNotFoundError:
            pass
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def exists(self, path: str, **_options: Any) -> bool:
        """Whether there is a file or a folder.

        :raises inrush.Error: a request failed, so that this is not known.
        """
        return self._type(path) is not None

    def isfile(self, path: str) -> bool:
        """Whether there is a file; the errors are those of `exists`."""
        return self._type(path) == "file"

    def isdir(self, path: str) -> bool:
        """Whether there is a folder; the errors are those of `exists`."""
        return self._type(path) == "directory"

    def _type(self, path: str) -> str | None:
        try:
            return str(self.info(path)["type"])
        except FileNotFoundError:
            return None

    def ls(self, path: str, detail: bool = True, **_options: Any) -> list[Any]:
        """The files and folders right below a folder, or the file itself.

        :raises FileNotFoundError: there is nothing of this name.
        :raises NotImplementedError: the path is empty: inrush lists no buckets.
        """
        path = self._strip_protocol(path)
        if not path:
            raise NotImplementedError("inrush lists no buckets: name one")
        entries = list(self._below(f"{path}/"))
        if not entries:
            found = self.info(path)
            entries = [found] if found["type"] == "file" else []
        return entries if detail else [entry["name"] for entry in entries]

    def _below(self, folder: str) -> Iterator[dict[str, Any]]:
        """What is right below a folder, which ends in a slash, without its own mark."""
        for entry in self.client.list(self._uri(folder), recursive=False):
            size = getattr(entry, "size", None)
            if size is None:
                yield self._folder(entry.uri[5:])
            elif entry.uri[5:] != folder:
                yield self._entry(cast("ObjectInfo", entry))

    def walk(self, path: str, maxdepth: int | None = None, topdown: bool = True,
             on_error: str | Callable[[OSError], Any] | None = None, detail: bool = False,
             **_options: Any) -> Iterator[tuple[str, Any, Any]]:
        """The folders and files of each folder, as ``os.walk`` has them. Names may be empty.

        :param on_error: "raise", "omit", or what is called with an error; by default a folder that
            is not there is left out, and other errors are raised.
        """
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        # It may be a file.
        yield from self._walk(f"{self._strip_protocol(path)}/", self.ls, maxdepth, topdown,
                              on_error, detail)

    def _walk(self, folder: str, entries: Callable[[str], Iterable[dict[str, Any]]],
              maxdepth: int | None, topdown: bool,
              on_error: str | Callable[[OSError], Any] | None, detail: bool
              ) -> Iterator[tuple[str, Any, Any]]:
        dirs: Any = {}
        files: Any = {}
        try:
            for entry in entries(folder):
                kind = dirs if entry["type"] == "directory" else files
                kind[entry["name"][len(folder):]] = entry
        except OSError as error:
            if callable(on_error):
                on_error(error)
            elif on_error == "raise" or \
                    on_error is None and not isinstance(error, FileNotFoundError):
                raise
            return
        if not detail:
            dirs, files = list(dirs), list(files)
        level = folder.removesuffix("/"), dirs, files
        if topdown:
            yield level
        if maxdepth is None or maxdepth > 1:
            # Who was given them may have changed them.
            for name in dirs:
                yield from self._walk(f"{folder}{name}/", self._below,
                                      None if maxdepth is None else maxdepth - 1, topdown,
                                      on_error, detail)
        if not topdown:
            yield level

    def find(self, path: str, maxdepth: int | None = None, withdirs: bool = False,
             detail: bool = False, prefix: str = "", **options: Any) -> Any:
        """All files below a folder, by one listing; `prefix` begins the names right below it.

        :raises inrush.Error: the listing failed.
        """
        path = self._strip_protocol(path)
        if maxdepth is not None or withdirs or not path:
            if prefix:
                raise ValueError("a prefix goes with neither maxdepth nor withdirs")
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail,
                                **options)
        found = {}
        for info in self.client.list(f"{self._uri(path)}/{prefix}", recursive=True):
            entry = self._entry(info)
            if entry["type"] == "file":
                found[entry["name"]] = entry
        if not found and not prefix and "/" in path:
            try:
                entry = self._entry(self.client.stat(self._uri(path)))
                found[entry["name"]] = entry
            except FileNotFoundError:
                pass
        return found if detail else list(found)

    def created(self, path: str) -> Any:
        """When the object was written, in UTC: objects are written once."""
        return self.modified(path)

    def modified(self, path: str) -> Any:
        """When the object was written, in UTC."""
        return self.info(path)["LastModified"]

    def checksum(self, path: str) -> str:
        """The ETag, or what else identifies the content."""
        entry = self.info(path)
        return str(entry.get("ETag") or super().checksum(path))

    def ukey(self, path: str) -> str:
        """What changes when the file changes."""
        return self.checksum(path)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None,
              autocommit: bool = True, cache_options: dict[str, Any] | None = None,
              cache_type: str | None = None, size: int | None = None,
              **_options: Any) -> File:
        if mode != "rb":
            self._refuse(path)
        # Formats that seek to and fro want no reading ahead.
        ahead = 0 if cache_type == "none" else None
        return self.client.open(self._uri(path), read_ahead=ahead)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None,
                 **_options: Any) -> bytes:
        """The bytes from `start` to before `end`; negative ones count from the end, as in slices.

        :raises FileNotFoundError: there is no such file.
        :raises inrush.Error: it cannot be read.
        """
        uri = self._uri(self._strip_protocol(path))
        if start is None and end is None:
            return self.client.read(uri)
        info = self.client.stat(uri)
        part = _clipped(info.size, start, end)
        return self.client.read(info, range=part) if part[1] else b""

    def cat_ranges(self, paths: Sequence[str], starts: Any, ends: Any,
                   max_gap: int | None = None, on_error: str = "return",
                   **_options: Any) -> list[Any]:
        """Ranges of many files, in one batch, in the order given.

        :param starts: bytes, one for each path or one for all; None is the beginning.
        :param ends: likewise; None is the end.
        :param max_gap: not used: ranges are not joined.
        :param on_error: ``return`` puts exceptions in the places of their ranges; otherwise the
            first is raised.
        :raises ValueError: the lists have different lengths.
        """
        paths = [self._strip_protocol(path) for path in paths]
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError(f"{len(paths)} paths, {len(starts)} starts, {len(ends)} ends")
        infos = self._infos(set(paths))
        out: list[Any] = [b""] * len(paths)
        asked, places = [], []
        for place, (path, start, end) in enumerate(zip(paths, starts, ends, strict=True)):
            info = infos[path]
            if isinstance(info, Exception):
                out[place] = info
                continue
            part = _clipped(info.size, start, end)
            if part[1]:
                asked.append((info, part))
                places.append(place)
        results = self.client.read_many(asked, ordered=True, return_exceptions=True)
        for place, result in zip(places, results, strict=True):
            out[place] = result if isinstance(result, Exception) else \
                _data_or_error(result)
        if on_error != "return":
            for one in out:
                if isinstance(one, Exception):
                    raise one
        return out

    def _infos(self, paths: set[str]) -> dict[str, Any]:
        """What each object is, or why that is not known."""

        asked = ((path, lambda reactor, uri=self._uri(path): reactor.stat(uri)) for path in paths)
        return {path: info if error is None else error
                for path, info, error in _jobs.run(self.client, asked, ASKED_MAX)}

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise",
            **options: Any) -> Any:
        """The content of a file, or of several as a dictionary, which are read at the same time.

        :param on_error: ``raise``, ``omit`` or ``return``, where a file cannot be read.
        """
        paths = self.expand_path(path, recursive=recursive)
        first = self._strip_protocol(path)
        if not (len(paths) > 1 or isinstance(path, list) or paths[0] != first):
            return self.cat_file(paths[0], **options)
        if recursive:
            paths = [one for one in paths if not self.isdir(one)]
        out = {}
        results = self.client.read_many((self._uri(one) for one in paths), ordered=True,
                                        return_exceptions=True)
        for one, result in zip(paths, results, strict=True):
            data = result if isinstance(result, Exception) else _data_or_error(result)
            if isinstance(data, Exception):
                if on_error == "raise":
                    raise data
                if on_error == "omit":
                    continue
            out[one] = data
        return out

    def get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK,
                 outfile: Any = None, **_options: Any) -> None:
        """Downloads a file. It has its name once it is complete.

        :raises FileNotFoundError: there is no such file.
        :raises inrush.Error: it cannot be read.
        """
        rpath = self._strip_protocol(rpath)
        if outfile is None and isfilelike(lpath):
            outfile = lpath
        if outfile is None and self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        info = self.client.stat(self._uri(rpath))
        callback.set_size(info.size)
        if outfile is not None:
            self._pieces(info, outfile, callback)
            return
        lpath = os.fspath(lpath)
        plain = re.sub("/+", "/", rpath)
        if "//" in lpath and plain != rpath and self.isfile(plain):
            message = f"one file would be {rpath} and {plain}: folders have no empty names"
            raise FileExistsError(errno.EEXIST, message, lpath)
        folder = os.path.dirname(lpath) or "."
        os.makedirs(folder, exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(prefix=".inrush-", dir=folder)
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                # As open(2) would have made it, and not for its owner alone.
                mask = os.umask(0)
                os.umask(mask)
                os.fchmod(file.fileno(), 0o666 & ~mask)
                self._pieces(info, file, callback)
            os.replace(unfinished, lpath)
        except BaseException:
            os.unlink(unfinished)
            raise

    def _pieces(self, info: ObjectInfo, file: Any, callback: Any) -> None:
        """Writes the object, a piece at a time in one buffer."""
        buffer = memoryview(bytearray(min(PIECE_BYTES, info.size)))
        for start in range(0, info.size, PIECE_BYTES):
            piece = buffer[:min(PIECE_BYTES, info.size - start)]
            self.client.read_into(info, piece, range=(start, len(piece)))
            written = 0
            while written < len(piece):
                count = file.write(piece[written:])
                written += len(piece) - written if count is None else count
            callback.relative_update(len(piece))

    def invalidate_cache(self, path: str | None = None) -> None:
        """Does nothing: no listings are kept."""

    def _refuse(self, path: str, *_arguments: Any, **_options: Any) -> NoReturn:
        """:raises OSError: always: EROFS."""
        raise OSError(errno.EROFS, "inrush only reads", path)

    mkdir = makedirs = rmdir = rm_file = rm = mv = cp_file = copy = _refuse


class _S3(InrushFileSystem):
    """The file system under the protocols of s3fs."""

    protocol = ("s3", "s3a")


def register_s3() -> None:
    """Has fsspec read ``s3://`` and ``s3a://`` through inrush, instead of s3fs, in this process.

    Writing to such addresses fails then.
    """
    for protocol in _S3.protocol:
        register_implementation(protocol, _S3, clobber=True)


def _data_or_error(result: Any) -> Any:
    error = getattr(result, "error", None)
    return result.data if error is None else error


def _clipped(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Offset and length of a slice of `size` bytes."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(0, last - first)


def _translated(options: dict[str, Any]) -> dict[str, Any]:
    """Options of s3fs as those of `inrush.Client`; others as they are."""
    options = dict(options)
    of_client = dict(options.pop("client_kwargs", None) or {})
    if "region_name" in of_client:
        options["region"] = of_client.pop("region_name")
    options.update(of_client)
    translated = {}
    for name, value in options.items():
        if name in _KEYS:
            if value is None:
                continue
            raise ValueError(f"the option '{name}' holds a key, which would be in every pickle: "
                             "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile")
        if name in _IGNORED:
            continue
        if name == "requester_pays":
            name, value = "request_payer", "requester" if value else None
        if value is not None:
            translated[_OF_S3FS.get(name, name)] = value
    return translated
