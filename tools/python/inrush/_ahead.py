"""Objects by number for a `DataLoader`, which are requested before it asks for them.

A loader asks its data set for one batch after the other. What comes next is known in two ways:

* Each number of a `ShardSampler` says which pass it is of, and its place there. A loader hands
  batches to its workers in turns, so a worker knows its next batches from the last two.
* The batches of other samplers stand in the queue of the worker, as many as `prefetch_factor` says.

A wrong guess costs what was read for it, and nothing else: data are kept by the number of their
object, and a batch is read by its own numbers.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing.queues
import os
import select
import sys
import threading
import weakref
from array import array
from collections import deque
from collections.abc import Sequence
from mmap import ACCESS_READ, mmap
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from torch.utils.data import get_worker_info

from ._file import WAIT_MS

if TYPE_CHECKING:
    from . import Client
    from ._native import Reactor
    from ._places import Listing

#: What is read ahead in a pass, at most, in bytes and in objects; its workers have equal parts.
AHEAD_BYTES_MAX = 256 << 20
AHEAD_OBJECTS_MAX = 2048

#: The path of a file in memory, its inode, and its number in the process that made it.
_Name = tuple[str, int, int]
_names = itertools.count()


class SamplerPass:
    """One pass of a sampler: the numbers of its objects, in their order.

    Workers have them in shared memory: each would need as long for a shuffle as the sampler did.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers

    def __reduce__(self) -> tuple[Any, ...]:
        # A thread for each worker may come here at the same time: one of their files stays.
        known = self.__dict__
        name, _file = known.get("_shared") or known.setdefault("_shared", _shared(self.numbers))
        return _pass_in_worker, (name,)


def _shared(numbers: Sequence[int]) -> tuple[_Name, BinaryIO | None]:
    """A file in memory with these numbers, which is gone once nobody has it open or mapped."""
    number = next(_names)
    try:
        file = open(os.memfd_create("inrush-pass"), "wb")
        file.write(array("I", numbers))
        file.flush()
    except OSError:
        # No descriptor is left, say. Workers do without.
        return ("", 0, number), None
    path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
    return (path, os.fstat(file.fileno()).st_ino, number), file


# The pass that a worker reads: each of its batches names it again.
_in_worker: tuple[_Name, SamplerPass] | None = None


def _pass_in_worker(name: _Name) -> SamplerPass:
    global _in_worker
    if _in_worker is None or _in_worker[0] != name:
        _in_worker = name, SamplerPass(_opened(name))
    return _in_worker[1]


def _opened(name: _Name) -> Sequence[int]:
    """The numbers of a pass of another process; none where that is over, or must not be seen."""
    path, inode, _ = name
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        if os.fstat(file.fileno()).st_ino == inode:
            return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ)).cast("I")
    return ()


class PlacedIndex(int):
    """The number of an object that knows its place in a pass."""

    of: SamplerPass
    place: int

    def __reduce__(self) -> tuple[Any, ...]:
        return placed, (int(self), self.place, self.of)


def placed(number: int, place: int, of: SamplerPass) -> PlacedIndex:
    """The number at this place of a pass."""
    index = PlacedIndex(number)
    index.place, index.of = place, of
    return index


class _Forecast(Protocol):
    """The numbers that come behind a batch."""

    def numbers(self, behind: int) -> Sequence[int]:
        """Some numbers from place `behind` on, 0 being the one that comes first behind the batch;
        none where they are not known."""

    @property
    def descriptor(self) -> int | None:
        """Readable when more is known; None where nothing is before the next batch."""


class _Read:
    """An object that is requested, and what came of it."""

    __slots__ = ("data", "error", "job")

    def __init__(self) -> None:
        # None before it begins, and once it has ended.
        self.job: int | None = None
        self.data = b""
        self.error: OSError | None = None


class _Reads:
    """The requests of one pass, or of one queue: for a batch, and for what comes behind it."""

    def __init__(self, client: Client, listing: Listing) -> None:
        self.client, self.listing = client, listing
        self._reactor: Reactor | None = None
        self._reads: dict[int, _Read] = {}
        self._of_job: dict[int, _Read] = {}
        # What is expected behind the last batch, and requested: its numbers, and sizes in bytes.
        self._ahead: deque[tuple[int, int]] = deque()
        self._ahead_bytes = 0
        # Whether more could be requested, if it were known.
        self._has_room = True
        #: Whether something of the last batch was not there yet.
        self.waited = True
        # In bytes: an object whose size is not known is taken to have as many.
        self._largest = 0

    def read(self, numbers: list[int], forecast: _Forecast, workers: int) -> list[bytes]:
        """The objects of a batch; those that come behind it are requested as well.

        :param workers: among how many the memory is divided.
        :raises inrush.Error: one of the batch cannot be read.
        """
        for number in numbers[:len(self._ahead)]:
            expected, size = self._ahead.popleft()
            self._ahead_bytes -= size
            if expected != number:
                self._drop()
                break
        try:
            for number in numbers:
                self._request(number)
            # Where only the size was requested, the bytes are requested now.
            self._take()
            batch = [self._reads[number] for number in numbers]
            self.waited = any(read.job is not None for read in batch)
            self._look_ahead(forecast, workers)
            for read in batch:
                if read.job is not None:
                    self._wait(read, forecast, workers)
                if read.error is not None:
                    raise read.error
                self._largest = max(self._largest, len(read.data))
            return [read.data for read in batch]
        finally:
            for number in numbers:
                done = self._reads.pop(number, None)
                if done is not None and done.job is not None and self._reactor is not None:
                    del self._of_job[done.job]
                    self._reactor.cancel(done.job)

    def _look_ahead(self, forecast: _Forecast, workers: int) -> None:
        self._has_room = False
        while numbers := forecast.numbers(len(self._ahead)):
            for number in numbers:
                if not 0 <= number < len(self.listing):
                    return
                size = self.listing.size(number)
                size = self._largest if size is None else size
                if len(self._ahead) >= AHEAD_OBJECTS_MAX // workers or \
                        self._ahead_bytes + size > AHEAD_BYTES_MAX // workers:
                    return
                self._request(number)
                self._ahead.append((number, size))
                self._ahead_bytes += size
        self._has_room = True

    def _request(self, number: int) -> None:
        if number in self._reads:
            return
        read = self._reads[number] = _Read()
        try:
            source = self.listing[number]
            if self._reactor is None or self._reactor.ended:
                self.client._find_bucket(source)
                self._reactor = self.client._core.reactor()
            read.job = self._reactor.read(source, None)
            self._of_job[read.job] = read
        except OSError as error:
            # Raised by the batch that has it.
            read.error = error

    def _wait(self, read: _Read, forecast: _Forecast, workers: int) -> None:
        self._take()
        if read.job is None or self._reactor is None:
            return
        poll, more = select.poll(), forecast.descriptor
        poll.register(self._reactor.fileno(), select.POLLIN)
        while read.job is not None:
            if more is not None:
                # Without room it would be readable all the time.
                poll.register(more, select.POLLIN if self._has_room else 0)
            if any(descriptor == more for descriptor, _ in poll.poll(WAIT_MS)):
                self._look_ahead(forecast, workers)
            self._take()

    def _take(self) -> None:
        """Notes what has ended."""
        for job, data, error in () if self._reactor is None else self._reactor.take():
            # One that was given up is not known any more.
            ended = self._of_job.pop(job, None)
            if ended is not None:
                ended.job, ended.data, ended.error = None, data, error

    def _drop(self) -> None:
        """Gives up everything that is requested."""
        self._reactor = None
        self._reads.clear()
        self._of_job.clear()
        self._ahead.clear()
        self._ahead_bytes = 0


class _Turns:
    """Which places of a pass the batches of one worker have: a loader hands them out in turns."""

    descriptor = None

    def __init__(self) -> None:
        self._numbers: Sequence[int] = ()
        # Where the last batch begins, and how long it is.
        self._place = self._length = 0
        # From there to the next batch of this worker; 0 where that is not known.
        self._stride = 0
        # How many batches are expected. They are doubled where one came as expected, and the one
        # before it was not there in time: who leaves an iterator soon, asks in another order, or
        # needs the processor for something else, has little read in vain.
        self._batches = 0

    def begin(self, first: PlacedIndex, length: int, workers: int, waited: bool) -> None:
        """`length` numbers from `first` on are the next batch; the last one had to be waited for,
        or not."""
        self._numbers, place = first.of.numbers, first.place
        # The other workers have a batch each before it is this one's turn again. Who asks for less
        # than that has divided the batch, and the rest of it comes first.
        least = length * workers
        stride = place - self._place
        if self._length == 0 or stride < 0 and place < least:
            # The pass begins, or begins again.
            self._stride, self._batches = least, 1
        elif stride == self._stride:
            twice = min(2 * self._batches, AHEAD_OBJECTS_MAX)
            self._batches = max(1, twice if waited else self._batches)
        else:
            self._stride, self._batches = stride if stride >= least else 0, 0
        self._place, self._length = place, length

    def numbers(self, behind: int) -> Sequence[int]:
        """As of `_Forecast`."""
        batch, at = divmod(behind, self._length)
        place = self._place + (batch + 1) * self._stride
        if self._stride == 0 or batch >= self._batches:
            return ()
        return self._numbers[place + at:place + self._length]


class _IndexQueue:
    """The queue of a worker of a `DataLoader`, whose batches are seen before their turn.

    PyTorch has no interface for that: it is a variable of the function that a worker runs, of
    torchdata's, too. Where that has no variable of this name and kind nothing is seen.
    """

    def __init__(self, queue: Any, batch: Any) -> None:
        self._queue, self._get = queue, queue.get
        self._taken: deque[Any] = deque()
        # What the worker asks for now: a list of numbers, or a number.
        self._batch = batch
        queue.get = self.get

    @classmethod
    def here(cls) -> _IndexQueue | None:
        """That of the worker that asks for a batch now."""
        frame = sys._getframe()
        while frame.f_code.co_name != "_worker_loop":
            if frame.f_back is None:
                return None
            frame = frame.f_back
        queue, batch = (frame.f_locals.get(name) for name in ("index_queue", "index"))
        return cls(queue, batch) if isinstance(queue, multiprocessing.queues.Queue) else None

    def asks_for(self, indices: Sequence[int]) -> bool:
        """Whether the worker asks for these, and no transform of a sample."""
        return indices is self._batch or len(indices) == 1 and indices[0] is self._batch

    def get(self, *args: Any, **options: Any) -> Any:
        """What the worker gets: everything once, in its order."""
        task = self._taken.popleft() if self._taken else self._get(*args, **options)
        self._batch = _batch_of(task)
        return task

    @property
    def descriptor(self) -> int | None:
        """As of `_Forecast`."""
        reader = getattr(self._queue, "_reader", None)
        return None if reader is None else int(reader.fileno())

    def numbers(self, behind: int) -> Sequence[int]:
        """As of `_Forecast`."""
        found = self._numbers(behind)
        if not found and not self._queue.empty():
            while not self._queue.empty():
                self._taken.append(self._get())
            found = self._numbers(behind)
        return found

    def _numbers(self, behind: int) -> Sequence[int]:
        for task in self._taken:
            batch = _batch_of(task)
            numbers = batch if isinstance(batch, list) else [batch]
            if not all(isinstance(number, int) for number in numbers):
                break
            if behind < len(numbers):
                return numbers[behind:]
            behind -= len(numbers)
        return ()


def _batch_of(task: Any) -> Any:
    """The batch of a task: a list of numbers, or a number; None of what ends a pass or a worker."""
    batch = task[1] if isinstance(task, tuple) else None
    # In torchdata's there is a note beside it.
    return batch[0] if isinstance(batch, tuple) else batch


class ReadsByNumber:
    """What one data set reads, and reads ahead. Copies and forked processes have nothing of it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        # Another thread that comes meanwhile reads by itself.
        self._lock = threading.Lock()
        # What was read ahead is gone with its pass: with the iterator of the loader.
        self._of_pass: weakref.WeakKeyDictionary[SamplerPass, tuple[_Turns, _Reads]]
        self._of_pass = weakref.WeakKeyDictionary()
        self._of_queue: tuple[_IndexQueue, _Reads] | None = None
        self._is_queue_known = False

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadsByNumber, ()

    def read(self, dataset: Any, client: Client, listing: Listing, indices: Sequence[int],
             numbers: list[int]) -> list[bytes]:
        """The objects of a batch.

        :param indices: as they were given.
        :param numbers: where these are in the listing.
        :raises inrush.Error: one of them cannot be read.
        """
        if self._process != os.getpid():
            self.__init__()  # type: ignore[misc]
        if numbers and self._lock.acquire(blocking=False):
            try:
                worker = get_worker_info()
                workers = 1 if worker is None else worker.num_workers
                known = self._in_pass(client, listing, indices, numbers, workers)
                if known is None and worker is not None and worker.dataset is dataset:
                    known = self._in_queue(client, listing, indices)
                if known is not None:
                    forecast, reads = known
                    return reads.read(numbers, forecast, workers)
            finally:
                self._lock.release()
        results = client.read_many([listing[number] for number in numbers], ordered=True)
        return [result.data for result in results]

    def _in_pass(self, client: Client, listing: Listing, indices: Sequence[int],
                 numbers: list[int], workers: int) -> tuple[_Forecast, _Reads] | None:
        """Of a batch that stands in a pass without gaps."""
        first = indices[0]
        if not isinstance(first, PlacedIndex) or \
                list(first.of.numbers[first.place:first.place + len(numbers)]) != numbers:
            return None
        turns, reads = self._of_pass.get(first.of, (None, None))
        if turns is None or reads is None or _is_of_others(reads, client, listing):
            turns, reads = self._of_pass[first.of] = _Turns(), _Reads(client, listing)
        turns.begin(first, len(numbers), workers, reads.waited)
        return turns, reads

    def _in_queue(self, client: Client, listing: Listing,
                  indices: Sequence[int]) -> tuple[_Forecast, _Reads] | None:
        """Of a batch that came by the queue of a worker."""
        if not self._is_queue_known:
            self._is_queue_known = True
            queue = _IndexQueue.here()
            self._of_queue = None if queue is None else (queue, _Reads(client, listing))
        if self._of_queue is None or not self._of_queue[0].asks_for(indices):
            return None
        if _is_of_others(self._of_queue[1], client, listing):
            self._of_queue = self._of_queue[0], _Reads(client, listing)
        return self._of_queue


def _is_of_others(reads: _Reads, client: Client, listing: Listing) -> bool:
    return reads.client is not client or reads.listing is not listing
