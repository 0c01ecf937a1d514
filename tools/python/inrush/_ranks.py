"""The ranks of a process group, and the messages between them, also that one has failed."""

from __future__ import annotations

import builtins
import hashlib
import pickle
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ._errors import Error, from_native
from ._tensors import memory_of

Value = TypeVar("Value")

#: How long it is waited between two looks at a collective operation: at first, and at most.
LOOK_SECONDS = (20e-6, 1e-3)
#: A rank that waits looks so often whether another one lost its connections.
LOST_SECONDS = 0.2


class Lost(ConnectionError):
    """A rank has died, or lost its connections: the process group is of no use any more."""


class Ranks:
    """The ranks of a process group, and this one among them.

    All of them must call the same methods in the same order. Their messages are tensors of a
    device of the group's backend.
    """

    def __init__(self, group: Any, device: torch.device) -> None:
        self.rank: int = dist.get_rank(group)
        if self.rank < 0:
            raise ValueError("this process is no rank of the process group")
        self.size: int = dist.get_world_size(group)
        self._group = group
        self._device = device
        # What the ranks agree on where connections are lost: a key of the group's store.
        find = getattr(group, "get_group_store", None)
        self._store = None if find is None else find()
        self._key = ""
        self._key = f"inrush/{self.of_rank_0(lambda: time.time_ns())}"
        #: Whether all ranks know that one has failed, or cannot be reached any more.
        self.has_failed = False

    def alike(self, what: object) -> None:
        """
        :raises ValueError: this is not the same on all ranks.
        """
        digest = int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:7], "little")
        both = self._of([digest, -digest])
        self._wait(lambda: dist.all_reduce(both, dist.ReduceOp.MAX, self._group, async_op=True))
        if int(both[0]) != -int(both[1]):
            raise ValueError("the ranks of the process group want different tensors: address, "
                             "names, and dimensions and counts of shard must be the same")

    def of_rank_0(self, find: Callable[[], Value]) -> Value:
        """What rank 0 finds; it is found once. What it raises all of them raise."""
        found, failure = None, None
        if self.rank == 0:
            try:
                found = find()
            except BaseException as error:
                failure = error
        self.agree(failure)
        value: Value = self._shared(0, found)
        return value

    def agree(self, failure: BaseException | None) -> None:
        """Returns where no rank has failed. Else this one raises its own failure, and those that
        have none that of the first that has one."""
        first = self._of([self.size if failure is None else self.rank])
        self._wait(lambda: dist.all_reduce(first, dist.ReduceOp.MIN, self._group, async_op=True))
        rank = int(first[0])
        if rank == self.size:
            return
        message = self._shared(rank, None if failure is None else _message_of(failure))
        self.has_failed = True
        raise _failure_of(rank, message) if failure is None else failure

    def report(self, failure: BaseException) -> None:
        """Informs the others that this rank has failed, if they do not know that one has."""
        if not self.has_failed:
            try:
                self.agree(failure)
            except BaseException:
                # What is raised is the failure.
                self.has_failed = True

    def broadcast(self, tensor: torch.Tensor, owner: int) -> None:
        """Gives all ranks the bytes that this tensor has on one of them."""
        source = dist.get_global_rank(self._group, owner)
        self._wait(lambda: dist.broadcast(tensor, source, self._group, async_op=True))

    def _shared(self, owner: int, value: Any) -> Any:
        """What one rank has."""
        data = pickle.dumps(value) if self.rank == owner else b""
        length = self._of([len(data)])
        self.broadcast(length, owner)
        if self.rank == owner:
            content = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self._device)
        else:
            content = torch.empty(int(length[0]), dtype=torch.uint8, device=self._device)
        self.broadcast(content, owner)
        return pickle.loads(memory_of(content.cpu(), 0, content.numel()))

    def _of(self, numbers: list[int]) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._device)

    def _wait(self, begin: Callable[[], Any]) -> None:
        """Waits for a collective operation; Ctrl-C ends that.

        :raises Lost: it failed here, or on another rank. Some operations end on the neighbours of a
            rank that died, and never on the others.
        """
        try:
            work = begin()
            pause, looked = LOOK_SECONDS[0], time.monotonic()
            while not work.is_completed():
                time.sleep(pause)
                pause = min(pause * 2, LOOK_SECONDS[1])
                if time.monotonic() > looked + LOST_SECONDS:
                    self._look()
                    looked = time.monotonic()
            work.wait()
        except Lost:
            self.has_failed = True
            raise
        except RuntimeError as error:
            self.has_failed = True
            reason = f"rank {self.rank} lost another one: {error}"
            if self._store is not None and self._key:
                try:
                    self._store.set(self._key, reason)
                except RuntimeError:
                    # The store is that of the rank that died.
                    pass
            raise Lost(reason) from error

    def _look(self) -> None:
        if self._store is None or not self._key:
            return
        if self._store.check([self._key]):
            raise Lost(self._store.get(self._key).decode())


def _message_of(failure: BaseException) -> tuple[str, dict[str, Any]]:
    """What another rank makes an error of."""
    if isinstance(failure, Error):
        return failure.message, {
            "kind": failure.kind, "uri": failure.uri, "attempts": failure.attempts,
            "request_id": failure.request_id}
    text = failure.args[0] if isinstance(failure, KeyError) and failure.args else failure
    return str(text), {"class": type(failure).__name__}


def _failure_of(rank: int, message: tuple[str, dict[str, Any]]) -> Exception:
    """The error of another rank."""
    text, what = message
    if "kind" in what:
        kind = what.pop("kind")
        return from_native(kind, f"rank {rank}: {text}", **what)
    if what["class"] == "GeneratorExit":
        return RuntimeError(f"rank {rank} stopped before the end")
    of = getattr(builtins, what["class"], None)
    if of in (ValueError, TypeError, KeyError, RuntimeError, OSError, MemoryError):
        failure: Exception = of(f"rank {rank}: {text}")
        return failure
    return RuntimeError(f"rank {rank}: {what['class']}: {text}")
