"""Event loops: each has its jobs, whose descriptor it watches while any is under way."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Any, Optional, TypeVar, Union

from . import _native
from ._errors import Closed
from ._native import ObjectInfo, Prefix, ReadResult

Element = TypeVar("Element")


class Loop:
    """The jobs of one event loop."""

    def __init__(self, core: _native.Core, loop: asyncio.AbstractEventLoop) -> None:
        # A loop that is over takes its jobs along: they must not keep it.
        self._known_loop = weakref.ref(loop)
        self._reactor = core.reactor()
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._watched = False
        self._called = False

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = self._known_loop()
        if loop is None:
            raise Closed("the event loop of these jobs is gone")
        return loop

    def _started(self, number: int) -> asyncio.Future[Any]:
        future = self._awaited(number)
        future.add_done_callback(lambda ended: self._cancel(number, ended))
        return future

    def _awaited(self, number: int) -> asyncio.Future[Any]:
        """What is done when this job has ended, and not before."""
        future = self._loop.create_future()
        self._futures[number] = future
        if not self._watched:
            self._loop.add_reader(self._reactor.fileno(), self._take)
            self._watched = True
        self._soon()
        return future

    def _soon(self) -> None:
        """What has ended at once raises no descriptor."""
        if not self._called:
            self._called = True
            self._loop.call_soon(self._take)

    @property
    def ended(self) -> bool:
        """Whether it is of no use any more."""
        return self._reactor.ended

    def _cancel(self, number: int, future: asyncio.Future[Any]) -> None:
        if future.cancelled() and number in self._futures:
            del self._futures[number]
            self._reactor.cancel(number)
            self._soon()

    def _take(self) -> None:
        self._called = False
        for number, value, error in self._reactor.take():
            future = self._futures.pop(number, None)
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
        if self._watched and len(self._reactor) == 0:
            self._loop.remove_reader(self._reactor.fileno())
            self._watched = False

    def stat(self, source: Any) -> asyncio.Future[Any]:
        return self._started(self._reactor.stat(source))

    def read(self, source: Any, range: Any) -> asyncio.Future[Any]:
        return self._started(self._reactor.read(source, range))

    async def read_into(self, source: Any, buffer: Any, range: Any) -> Any:
        number = self._reactor.read_into(source, buffer, range)
        ended = self._awaited(number)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            # Workers and the kernel may still write there: the caller has it again when they have
            # let go, however often it is cancelled.
            self._reactor.cancel(number)
            self._soon()
            while not ended.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([ended])
            # Nobody else asks for its failure, which would be logged.
            ended.exception()
            raise

    def close(self) -> None:
        """Ends all jobs; from the loop's own thread their futures fail now, else soon."""
        futures, self._futures = self._futures, {}
        loop = self._known_loop()
        if loop is None or loop.is_closed():
            self._reactor.close()
            return
        loop.call_soon_threadsafe(self._end, futures)

    def _end(self, futures: dict[int, asyncio.Future[Any]]) -> None:
        for future in futures.values():
            if not future.done():
                future.set_exception(Closed("the client is closed"))
        if self._watched:
            self._loop.remove_reader(self._reactor.fileno())
            self._watched = False
        self._reactor.close()


class Loops:
    """The event loops that use one client."""

    def __init__(self, core: _native.Core) -> None:
        self._core = core
        self._process = os.getpid()
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Loop]
        self._loops = weakref.WeakKeyDictionary()

    def here(self) -> Loop:
        """The jobs of the loop that runs here."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._loops = weakref.WeakKeyDictionary()
        running = asyncio.get_running_loop()
        known = self._loops.get(running)
        if known is None or self._core.closed or known.ended:
            # One that was closed with jobs under way is kept by their futures.
            for loop, jobs in list(self._loops.items()):
                if loop.is_closed():
                    del self._loops[loop]
                    jobs.close()
            known = Loop(self._core, running)
            self._loops[running] = known
        return known

    def close(self) -> None:
        if self._process == os.getpid():
            for loop in list(self._loops.values()):
                loop.close()
            self._loops = weakref.WeakKeyDictionary()

    def list(self, uri: str, recursive: bool) -> AsyncIterator[Union[ObjectInfo, Prefix]]:
        return _AsyncElements(self._list(uri, recursive))

    def read_many(
        self, items: Iterable[Any], ordered: bool, return_exceptions: bool
    ) -> AsyncIterator[ReadResult]:
        return _AsyncElements(self._read_many(items, ordered, return_exceptions))

    async def _list(
        self, uri: str, recursive: bool
    ) -> AsyncGenerator[Union[ObjectInfo, Prefix], None]:
        listing = self._core.list(uri, recursive)
        while True:
            page = listing.take()
            if page is None:
                await rung(listing)
                continue
            if not page:
                return
            for entry in page:
                yield entry

    async def _read_many(
        self, items: Iterable[Any], ordered: bool, return_exceptions: bool
    ) -> AsyncGenerator[ReadResult, None]:
        taken = iter(items)
        first = list(itertools.islice(taken, 1))
        for item in first:
            source = item[0] if isinstance(item, tuple) and item else item
            if isinstance(source, ObjectInfo):
                # Finds where the bucket is, once; the item's own read reports a failure.
                with contextlib.suppress(OSError):
                    await self.here().read(source, (0, 0))
        many = self._core.read_many(itertools.chain(first, taken), ordered, return_exceptions)
        try:
            while True:
                results = many.take()
                if results is None:
                    await rung(many)
                    continue
                if not results:
                    return
                for result in results:
                    yield result
        finally:
            many.close()


class _AsyncElements(AsyncIterator[Element]):
    """As `inrush._client.Elements`, for event loops."""

    def __init__(self, elements: AsyncGenerator[Element, None]) -> None:
        self._elements = elements
        self._ended: Optional[str] = None

    async def __anext__(self) -> Element:
        if self._ended is not None:
            raise Closed(self._ended)
        try:
            return await self._elements.__anext__()
        except StopAsyncIteration:
            raise
        except BaseException as error:
            self._ended = ended_by(error)
            raise

    async def aclose(self) -> None:
        """Ends them, and what was requested ahead."""
        self._ended = self._ended or "the iterator was closed"
        await self._elements.aclose()


def ended_by(error: BaseException) -> str:
    """What is said of an iterator that has failed."""
    why = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"the iterator has failed before, and does not go on: {why}"


async def rung(bell: Union[_native.List, _native.Download, _native.ReadMany]) -> None:
    """Waits until there may be something to take."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    descriptor = bell.fileno()
    loop.add_reader(descriptor, _ring, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


def _ring(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
