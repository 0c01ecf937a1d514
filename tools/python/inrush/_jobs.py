"""Many jobs of one client at a time, in the thread that waits for them.

A signal reaches the wait at once. Threads of a pool would have to end theirs first, and there is
none for a thread that goes on when the main one has ended.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from ._file import WAIT_MS

if TYPE_CHECKING:
    from ._client import Client
    from ._native import Reactor

Name = TypeVar("Name")
Job = Callable[["Reactor"], int]


def run(
    client: Client, jobs: Iterable[tuple[Name, Job]], at_once: int,
    has_room: Callable[[], bool] = lambda: True,
) -> Generator[tuple[Name, Any, Optional[OSError]], None, None]:
    """Runs jobs, at most `at_once` at a time; yields name, value and error of each as it ends.

    While there is no room, and some are under way, none is begun. A job begins something in a
    reactor, and returns its number. Whoever closes the generator, or is interrupted, gets back once
    nothing is written to lent memory any more.
    """
    reactor = client._core.reactor()
    poll = select.poll()
    poll.register(reactor.fileno(), select.POLLIN)
    under_way: dict[int, Name] = {}

    def ended(most: int) -> Iterator[tuple[Name, Any, Optional[OSError]]]:
        """Waits until at most `most` are under way, and there is room for another."""
        while len(under_way) > most or under_way and not has_room():
            for number, value, error in reactor.take():
                yield under_way.pop(number), value, error
            if len(under_way) > most or under_way and not has_room():
                poll.poll(WAIT_MS)

    try:
        for name, begin in jobs:
            try:
                under_way[begin(reactor)] = name
            except OSError as error:
                # No address.
                yield name, None, error
            yield from ended(at_once - 1)
        yield from ended(0)
    finally:
        reactor.close()
