"""Processes that fork, spawn, or have a server fork for them."""

from __future__ import annotations

import multiprocessing
import os
import signal
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
        found = [answers.get(timeout=60) for _ in children]
        for child in children:
            child.join()
            assert child.exitcode == 0
        assert len({process for process, *_ in found}) == 3
        assert all(is_right and data == b"abc" for _, is_right, data in found)
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


@pytest.mark.parametrize("name", ["read", "stat"])
def test_a_handler_of_a_signal_forks_while_its_process_waits(serve: Serve, name: str) -> None:
    children: list[int] = []
    parent = os.getpid()

    def fork(*_: object) -> None:
        children.append(os.fork())
        if os.getpid() != parent:
            # One that waits for ever does not do so for long.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)

    known = signal.signal(signal.SIGALRM, fork)
    try:
        with serve(OBJECTS, "--first-byte-latency", "1000").client() as client:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            code = 1
            try:
                getattr(client, name)("s3://data/a")
            except RuntimeError as error:
                code = 0 if "another process" in str(error) else 2
            finally:
                if os.getpid() != parent:
                    os._exit(code)
            assert code == 1, "the parent goes on"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, known)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0]


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
