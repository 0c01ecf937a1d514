"""The client: what programs read S3 with."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, NoReturn, Optional, TypeVar, Union, overload

from . import _host, _native
from ._aio import Loops, ended_by
from ._download import Progress, Transfer
from ._errors import Closed
from ._file import AHEAD_SUM_MAX, File, Pool
from ._native import ObjectInfo, Prefix, ReadResult

#: An address "s3://bucket/key", every character of the key literal, or an object of a listing.
Source = Union[str, ObjectInfo]
#: Offset and length, in bytes.
Range = tuple[int, int]
#: What `Client.read_many` takes.
Item = Union[Source, tuple[Source, Optional[Range]]]
Element = TypeVar("Element")
#: All processes of a host; as one of several, its number first; or a part of the host's resources.
Share = Union[Literal["host"], tuple[Literal["host"], int, int], tuple[int, int]]


class Elements(Iterator[Element]):
    """Elements of one call. After a failure each further `next` raises it again, so that it never
    looks like the end. The client stays as long as they are read, whoever else drops it.
    """

    def __init__(self, client: Optional[Client], elements: Iterator[Element]) -> None:
        self._client = client
        self._elements = elements
        # The text alone: an exception has all that was there where it passed.
        self._ended: Optional[str] = None

    def __next__(self) -> Element:
        if self._ended is not None:
            raise Closed(self._ended)
        try:
            return next(self._elements)
        except StopIteration:
            self._client = None
            raise
        except BaseException as error:
            self._ended = ended_by(error)
            raise

    def close(self) -> None:
        """Ends them, and what was requested ahead. `next` raises Closed from then on."""
        self._ended = self._ended or "the iterator was closed"
        self._elements, self._client = iter(()), None


class Client:
    """Reads objects of S3 and of compatible servers.

    Nothing happens before the first use: no connection, no thread, no look at credentials. Regions,
    endpoints and credentials are found as the AWS tools find them. A client may be used by several
    threads at the same time; it may be pickled (its options are, never keys); and a forked process
    may use its copy, which starts an engine of its own.

    Options, all of them as the command's (`inrush get --help`):

    * `endpoint_url`, `region`, `profile`, `no_sign_request`, `ca_bundle`, `no_verify_ssl`,
      `addressing_style` ("auto", "path" or "virtual"), `use_dualstack_endpoint`,
      `use_fips_endpoint`, `request_payer` ("requester"), `sse_c_key_file` (or INRUSH_SSE_C_KEY):
      the server, and as whom.
    * `interface`: names of network interfaces to connect over. A proxy is no option: as for the
      command, HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY say.
    * `memory` (bytes, or a str such as "512MiB"), `workers`, `connections`, `max_connections`: how
      much of the machine; chosen to fit it where None. `bandwidth_limit`: bytes a second.
    * `ring`: "auto", "io_uring" or "epoll".
    * `connect_timeout`, `read_timeout`: after how many seconds an attempt ends that has no
      connection, or receives nothing (10 and 30).
    * `retry_for`: for how many seconds an endpoint is tried again that does not answer;
      `max_attempts`: of a range, in a row without new data; `list_requests`: at the same time.
    * `share="host"`: one engine reads for all processes of this user on this host whose clients
      have the options and the environment of this one (variables of AWS, proxies). The first
      starts it, as a process of its own; it ends 5 seconds after the last one. Credentials, the
      pace of requests, and the bounds of memory and connections are the engine's. A read fails
      with HostError where the engine is killed; the next one starts another. Where processes
      cannot share memory, each has an engine of its own, with a warning. `get`, `sync` and listings
      are the process's own in any case.
    * `share=(i, n)`: this is client i of n on this machine, and takes its part of connections,
      memory and workers.
    """

    def __init__(
        self,
        *,
        endpoint_url: Optional[str] = None,
        region: Optional[str] = None,
        profile: Optional[str] = None,
        no_sign_request: bool = False,
        ca_bundle: Union[str, os.PathLike[str], None] = None,
        no_verify_ssl: bool = False,
        addressing_style: Optional[str] = None,
        use_dualstack_endpoint: bool = False,
        use_fips_endpoint: bool = False,
        request_payer: Optional[str] = None,
        sse_c_key_file: Union[str, os.PathLike[str], None] = None,
        interface: Union[str, Sequence[str], None] = None,
        memory: Union[int, str, None] = None,
        workers: Optional[int] = None,
        connections: Optional[int] = None,
        max_connections: Optional[int] = None,
        bandwidth_limit: Union[int, str, None] = None,
        ring: Optional[str] = None,
        connect_timeout: Optional[float] = None,
        read_timeout: Optional[float] = None,
        retry_for: Optional[float] = None,
        max_attempts: Optional[int] = None,
        list_requests: Optional[int] = None,
        share: Union[Share, None] = None,
        **unknown: NoReturn,
    ) -> None:
        if unknown:
            raise TypeError(_unknown(*unknown))
        self._options: dict[str, Any] = {
            "endpoint_url": endpoint_url,
            "region": region,
            "profile": profile,
            "no_sign_request": no_sign_request,
            "ca_bundle": None if ca_bundle is None else os.fspath(ca_bundle),
            "no_verify_ssl": no_verify_ssl,
            "addressing_style": addressing_style,
            "use_dualstack_endpoint": use_dualstack_endpoint,
            "use_fips_endpoint": use_fips_endpoint,
            "request_payer": request_payer,
            "sse_c_key_file": None if sse_c_key_file is None else os.fspath(sse_c_key_file),
            "interface": [interface] if isinstance(interface, str) else interface,
            "memory": memory,
            "workers": workers,
            "connections": connections,
            "max_connections": max_connections,
            "bandwidth_limit": bandwidth_limit,
            "ring": ring,
            "connect_timeout": connect_timeout,
            "read_timeout": read_timeout,
            "retry_for": retry_for,
            "max_attempts": max_attempts,
            "list_requests": list_requests,
            "share": share,
        }
        self._core = _native.Core(_native_options(self._options))
        self._loops = Loops(self._core)
        # Of this process, under way or not.
        self._transfers: weakref.WeakSet[_native.Download] = weakref.WeakSet()
        # Of what its files read ahead.
        self._pool = Pool(min(AHEAD_SUM_MAX, self._core.memory_bytes or AHEAD_SUM_MAX))

    @property
    def options(self) -> dict[str, Any]:
        """The options that were given: `Client(**client.options)` is another client like this."""
        return {name: value for name, value in self._options.items() if value is not None}

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.options,)

    def __repr__(self) -> str:
        given = self.options
        if isinstance(url := given.get("endpoint_url"), str):
            # It is refused with a password, which would be in every log until then.
            given["endpoint_url"] = re.sub("//.*@", "//***@", url)
        return "inrush.Client(" + ", ".join(f"{name}={given[name]!r}" for name in given) + ")"

    def stat(self, uri: Source) -> ObjectInfo:
        """What the server says of an object (HEAD).

        Raises NotFound, PermissionDenied and the other errors of this package.
        """
        return self._core.stat(uri)

    @overload
    def list(self, uri: str, *, recursive: Literal[True] = True) -> Iterator[ObjectInfo]: ...

    @overload
    def list(self, uri: str, *, recursive: bool) -> Iterator[Union[ObjectInfo, Prefix]]: ...

    def list(self, uri: str, *, recursive: bool = True) -> Iterator[Union[ObjectInfo, Prefix]]:
        """The objects whose key begins so, in the order of keys, as their pages come.

        The prefix is literal: "s3://bucket/train" has "train2/a", too, and no character is a
        wildcard. If not `recursive`, only the objects up to the next slash, and a `Prefix` for what
        goes on behind it. Where there is nothing the iterator is empty; a bucket that does not
        exist raises NotFound.
        """
        return Elements(self, self._core.list(uri, recursive))

    def read(self, source: Source, range: Optional[Range] = None) -> bytes:
        """The bytes of an object, or of a range: (offset, length) in bytes.

        An ObjectInfo spares the question for the size. With its ETag, which listings have, the read
        fails with Changed where the object was replaced since; without one only another size is
        found, as a ServerError. Long ranges are fetched in parallel. Raises InvalidRange beyond the
        end.
        """
        return self._core.read(source, range)

    def read_into(self, source: Source, buffer: Any, range: Optional[Range] = None) -> int:
        """Reads into memory of the caller, and returns how many bytes were written.

        The buffer is anything contiguous and writable that has the buffer protocol: a bytearray, a
        memoryview, an array of numpy. It may be longer than what is read. Bytes are received
        straight into it; pages that were never touched come to be on the way, at their usual cost.

        Nobody else may use this memory meanwhile, nor may another read have a part of it. What is
        in it after an error is not defined.
        """
        return self._core.read_into(source, buffer, range)

    def read_many(
        self, items: Iterable[Item], *, ordered: bool = True, return_exceptions: bool = False
    ) -> Iterator[ReadResult]:
        """Reads many objects or ranges at the same time.

        An item is a source or a tuple (source, range). Items are taken as they are needed, up to
        2,048 items or 256 MiB ahead. Results come in the order of the items, or as they are there
        if not `ordered`. The first error is raised at its turn, and nothing comes behind it: `next`
        raises Closed then. With `return_exceptions` it is the `error` of its result, whose `data`
        is empty. What the client itself lacks, such as credentials, what `items` raises, and
        TypeErrors are raised always.
        """
        if isinstance(items, str):
            raise TypeError("items is one str: give a list of sources, [source]")
        found = self._where_asked(iter(items))
        return Elements(self, self._core.read_many(found, ordered, return_exceptions))

    def _find_bucket(self, source: Source) -> None:
        """Asks where the bucket of an object is, unless that is known. What is read of it later
        reports a failure. The engine of the host does so itself."""
        if isinstance(source, ObjectInfo) and not self._core.shared:
            with contextlib.suppress(OSError):
                self._core.read(source, (0, 0))

    def _where_asked(self, items: Iterator[Item]) -> Iterator[Item]:
        """These items. Where the bucket of the first is gets asked once before they are handed
        out, and not by each of the many that are begun at the same time."""
        for item in items:
            source = item[0] if isinstance(item, tuple) else item
            self._find_bucket(source)
            yield item
            break
        yield from items

    def open(
        self,
        source: Source,
        *,
        read_ahead: Union[int, str, None] = None,
        sequential: bool = False,
    ) -> File:
        """Opens an object for reading, as a binary file.

        Who reads on gets ever more ahead of time, at most `read_ahead` (bytes, or a str such as
        "8MiB"; by default 32 MiB; 0 for nothing ahead). With `sequential` all of `read_ahead` is
        read ahead from the first read on: the file will be read to its end.

        All files of a client together have at most 256 MiB read ahead, or `memory` where that is
        less, in equal shares; one alone has at most half of it. In addition each holds its current
        read: the requested bytes, or 128 KiB; and 256 KiB of places that it has jumped to.
        """
        return File(self, source, read_ahead=read_ahead, sequential=sequential)

    def get(
        self,
        sources: Union[str, Iterable[str]],
        dest: Union[str, os.PathLike[str]],
        *,
        progress: Optional[Progress] = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Downloads objects as `inrush get` does, in this process, and returns its JSON report.

        Options are the command's: `verify="strict"`, `include=["*.tar"]`, `overwrite="never"`,
        `deadline="1h"`; those of a client hold for this call alone. The credentials are the
        client's, and the workers the download's own. What only prints is without effect (`stats`,
        `explain`, `verbose`), and `dry_run`, `discard` and metrics are the program's alone
        (`python -m inrush`): they raise Usage.

        `progress` is called for each object as soon as it has ended, with a dict: `object` (its
        line of the command's --report), `objects` and `bytes` (so far). What it raises ends the
        download, as Ctrl-C does: complete files stay, and the next call resumes the others.

        Raises the error that the command reports: that of the objects, where they failed for the
        same reason, otherwise ObjectsFailed. Its `errors` has the error of each failed object, and
        its `report` the report.
        """
        listed = [sources] if isinstance(sources, str) else [*sources]
        transfer = self._transfer("get", listed, dest, progress, options)
        return transfer.run()

    def sync(
        self,
        source: str,
        dest: Union[str, os.PathLike[str]],
        *,
        delete: bool = False,
        progress: Optional[Progress] = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Downloads new and changed objects as `inrush sync` does, and returns its JSON report;
        otherwise as `get`."""
        options["delete"] = delete
        transfer = self._transfer("sync", [source], dest, progress, options)
        return transfer.run()

    def _transfer(
        self,
        command: str,
        sources: Sequence[str],
        dest: Union[str, os.PathLike[str]],
        progress: Optional[Progress],
        options: dict[str, Any],
    ) -> Transfer:
        """A download that is started, over another client where options of a client are given."""
        own = {name: options.pop(name) for name in [*options] if name in self._options}
        client = Client(**{**self.options, **own}) if own else self
        transfer = Transfer(client._core, command, sources, dest, progress, options)
        # Of whichever client it is: it ends when this one is closed.
        transfer.owner = self._core
        self._transfers.add(transfer.download)
        if self.closed:
            # In another thread, before it could know of this one.
            transfer.download.cancel()
        return transfer

    async def async_get(
        self,
        sources: Union[str, Iterable[str]],
        dest: Union[str, os.PathLike[str]],
        *,
        progress: Optional[Progress] = None,
        **options: Any,
    ) -> dict[str, Any]:
        """`get` for event loops, which `progress` must not block. Cancelling it ends the download;
        it ends when no file is written any more."""
        listed = [sources] if isinstance(sources, str) else [*sources]
        transfer = self._transfer("get", listed, dest, progress, options)
        return await transfer.async_run()

    async def async_sync(
        self,
        source: str,
        dest: Union[str, os.PathLike[str]],
        *,
        delete: bool = False,
        progress: Optional[Progress] = None,
        **options: Any,
    ) -> dict[str, Any]:
        """`sync` for event loops; see `async_get`."""
        options["delete"] = delete
        transfer = self._transfer("sync", [source], dest, progress, options)
        return await transfer.async_run()

    async def async_stat(self, uri: Source) -> ObjectInfo:
        """`stat` for event loops."""
        info = await self._loops.here().stat(uri)
        assert isinstance(info, ObjectInfo)
        return info

    async def async_read(self, source: Source, range: Optional[Range] = None) -> bytes:
        """`read` for event loops. Cancelling it cancels its requests."""
        data = await self._loops.here().read(source, range)
        assert isinstance(data, bytes)
        return data

    async def async_read_into(
        self, source: Source, buffer: Any, range: Optional[Range] = None
    ) -> int:
        """`read_into` for event loops. Do not touch the buffer before it has returned.

        Cancelling it cancels its requests; it ends when nothing is written there any more.
        """
        written = await self._loops.here().read_into(source, buffer, range)
        assert isinstance(written, int)
        return written

    def async_list(
        self, uri: str, *, recursive: bool = True
    ) -> AsyncIterator[Union[ObjectInfo, Prefix]]:
        """`list` for event loops."""
        return self._loops.list(uri, recursive)

    def async_read_many(
        self, items: Iterable[Item], *, ordered: bool = True, return_exceptions: bool = False
    ) -> AsyncIterator[ReadResult]:
        """`read_many` for event loops. The iterable must not block; what `async_list` yields is
        collected before: `[info async for info in client.async_list(uri)]`.
        """
        if isinstance(items, str):
            raise TypeError("items is one str: give a list of sources, [source]")
        return self._loops.read_many(items, ordered, return_exceptions)

    def limit(self) -> Optional[dict[str, Any]]:
        """What the limit of all reads of this client in this process was, so far; None where
        nothing was read.

        As `limit` in the summary of the command: `part` ("latency", "cpu", ...; "reader" where the
        program waited for no read), `share` of the time (0 to 1), `bytes_per_second`, `shares` of
        all parts, and all of it in words as `sentence`.
        """
        limit = self._core.limit()
        return None if limit is None else json.loads(limit)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._core.closed

    def close(self) -> None:
        """Ends it: what is under way fails with Closed, and no thread or descriptor is left."""
        self._loops.close()
        self._core.close()
        for download in list(self._transfers):
            download.cancel()

    def __enter__(self) -> Client:
        """Raises Closed, where it was closed: it stays so."""
        if self.closed:
            raise Closed("the client is closed: make another one")
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        """As `__enter__`."""
        return self.__enter__()

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()


def _native_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options as the native part has them: a share of the host's engine in two of them."""
    share = given["share"]
    if share == "host":
        share = ("host", 0, 1)
    if not isinstance(share, (tuple, list)) or len(share) != 3 or share[0] != "host":
        return given
    return {**given, "host": _host.options_of(given), "share": tuple(share[1:])}


def _unknown(name: str, *_others: str) -> str:
    """What is said of an option that a client does not have."""
    alike = difflib.get_close_matches(name, Client.__init__.__kwdefaults__ or (), 1)
    advice = ""
    if alike:
        advice = f"; did you mean '{alike[0]}'?"
    elif {"key", "secret", "token"}.intersection(name.split("_")):
        advice = (": it takes no keys, which would be in every pickle; set AWS_ACCESS_KEY_ID, "
                  "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN in the environment, or give "
                  "profile=")
    return f"Client has no option '{name}'{advice}"


def _restored(options: dict[str, Any]) -> Client:
    return Client(**options)


_default: Optional[Client] = None
_lock = threading.Lock()


def _forget_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def default_client() -> Client:
    """The client of this process, with the options of the environment."""
    global _default
    with _lock:
        if _default is None or _default.closed:
            _default = Client()
        return _default
