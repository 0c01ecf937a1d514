"""Processes that fork, spawn, or have a server fork for them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from typing import Any

import inrush
import pytest
from common import descriptors, pattern, threads

Serve = Callable[..., Any]
BIG = pattern(10_000_003)
OBJECTS = {"data/big": BIG, "data/a": b"abc"}
METHODS = multiprocessing.get_all_start_methods()


def reads(client: inrush.Client, answers: Any) -> None:
    answers.put((os.getpid(), client.read("s3://data/big") == BIG, client.read("s3://data/a")))
    client.close()


@pytest.mark.parametrize("method", METHODS)
def test_processes_start_engines_of_their_own(serve: Serve, method: str) -> None:
    context = multiprocessing.get_context(method)
    with serve(OBJECTS).client() as client:
        assert client.read("s3://data/a") == b"abc"
        answers = context.Queue()
        children = [context.Process(target=reads, args=(client, answers)) for _ in range(3)]
        for child in children:
            child.start()
        told = [answers.get(timeout=60) for _ in children]
        for child in children:
            child.join()
            assert child.exitcode == 0
        assert len({process for process, *_ in told}) == 3
        assert all(is_right and data == b"abc" for _, is_right, data in told)
        # The parent's engine is as it was.
        assert client.read("s3://data/big") == BIG


def in_child(work: Callable[[], None]) -> int:
    """The exit code of a forked child that does this."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_leaves_what_is_its_parents(serve: Serve) -> None:
    with serve(OBJECTS).client() as client:
        client.read("s3://data/a")
        many = client.read_many(["s3://data/big"] * 50)
        next(many)
        listing = client.list("s3://data/")

        def work() -> None:
            open_before = descriptors()
            assert not threads()
            with pytest.raises(RuntimeError, match="another process"):
                next(many)
            with pytest.raises(RuntimeError, match="another process"):
                next(listing)
            client.close()
            with pytest.raises(inrush.Closed):
                client.read("s3://data/a")
            assert descriptors() == open_before, "they are the parent's to close"

        for _ in range(3):
            assert in_child(work) == 0
        assert sum(len(result.data) for result in many) == 49 * len(BIG)
        assert [entry.key for entry in listing] == ["a", "big"]
        assert client.read("s3://data/a") == b"abc"


def test_a_child_of_a_child(serve: Serve) -> None:
    with serve(OBJECTS).client() as client:

        def reads_here() -> None:
            assert client.read("s3://data/a") == b"abc"
            client.close()

        def work() -> None:
            assert client.read("s3://data/a") == b"abc"
            assert in_child(reads_here) == 0
            reads_here()

        reads_before = client.read("s3://data/a")
        assert in_child(work) == 0
        assert client.read("s3://data/a") == reads_before


def test_forks_while_others_read(serve: Serve) -> None:
    is_over = threading.Event()
    failures: list[BaseException] = []
    with serve(OBJECTS).client() as client:

        def work() -> None:
            try:
                while not is_over.is_set():
                    assert client.read("s3://data/big") == BIG
            except BaseException as error:
                failures.append(error)

        def child() -> None:
            assert client.read("s3://data/a") == b"abc"

        running = [threading.Thread(target=work) for _ in range(3)]
        for thread in running:
            thread.start()
        codes = [in_child(child) for _ in range(10)]
        is_over.set()
        for thread in running:
            thread.join()
    assert not failures and codes == [0] * 10
