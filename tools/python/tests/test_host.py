"""One engine for the processes of a host: `Client(share="host")`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import inrush
import inrush._host as host
import pytest
from common import Answers, descriptors, engines, pattern, threads, until

Serve = Callable[..., Any]
BIG = pattern(30_000_017)
SMALL = {f"data/small/{at:04}": BIG[at:11 + at * 38] for at in range(500)}
OBJECTS = {"data/big": BIG, "data/a": b"abc", "data/empty": b"", **SMALL}
METHODS = multiprocessing.get_all_start_methods()


def memories(process: int) -> int:
    """How many memories an engine shares with clients."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/maps").read_text().count("memfd:inrush-shared")
    return 0


@pytest.fixture
def shared(serve: Serve) -> Iterator[Any]:
    """An origin, whose clients share an engine; it is gone afterwards."""
    origin = serve(OBJECTS)
    yield origin
    until(lambda: not engines(origin.endpoint))


def test_all_reads_of_a_client_are_right(shared: Any) -> None:
    with shared.client() as own:
        # What a process keeps of its first client.
        list(own.list("s3://data/small/"))
    before = (threads(), descriptors())
    with shared.client(share="host") as client:
        assert client.read("s3://data/big") == BIG
        assert client.read("s3://data/big", (17, 12_000_000)) == BIG[17:12_000_017]
        assert client.read("s3://data/empty") == b"" == client.read("s3://data/a", (3, 0))
        assert client.stat("s3://data/big").size == len(BIG)
        buffer = bytearray(len(BIG) + 5)
        assert client.read_into("s3://data/big", buffer) == len(BIG)
        assert buffer[:-5] == BIG and buffer[-5:] == bytes(5)
        found = {result.source.uri: result.data for result in
                 client.read_many(client.list("s3://data/small/"), ordered=False)}
        assert found == {f"s3://{name}": data for name, data in SMALL.items()}
        ordered = [result.data for result in client.read_many(f"s3://{name}" for name in SMALL)]
        assert ordered == list(SMALL.values())
        with client.open("s3://data/big") as file:
            file.seek(-8, 2)
            assert file.read() == BIG[-8:] and file.seek(0) == 0 and file.read() == BIG

        async def at_once() -> list[bytes]:
            return await asyncio.gather(*(client.async_read(f"s3://{name}") for name in SMALL))

        assert asyncio.run(at_once()) == list(SMALL.values())
        assert client.limit()["part"] and len(engines(shared.endpoint)) == 1
    until(lambda: (threads(), descriptors()) == before)


def test_errors_are_those_of_an_engine_of_its_own(shared: Any) -> None:
    with shared.client(share="host") as client, shared.client() as own:
        for read in (lambda one: one.read("s3://data/none"), lambda one: one.stat("s3://none/x"),
                     lambda one: one.read("s3://data/a", (1, 3)),
                     lambda one: one.read(inrush.ObjectInfo("s3://data/a", 3, '"other"')),
                     lambda one: one.read_into("s3://data/big", bytearray(7))):
            errors = []
            for one in (own, client):
                with pytest.raises(inrush.Error) as caught:
                    read(one)
                of = caught.value
                errors.append((type(of), of.kind, of.uri, str(of)))
            assert errors[0] == errors[1]
        results = client.read_many(["s3://data/a", "s3://data/none", "s3://data/big"],
                                   return_exceptions=True)
        assert [type(result.error) for result in results] == \
            [type(None), inrush.NotFound, type(None)]


def test_credentials_are_looked_for_by_the_engine(
        serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = serve(OBJECTS, "--access-key", "AKIDEXAMPLE", "--secret-key", "secret")
    client = inrush.Client(endpoint_url=origin.endpoint, share="host")
    assert client.read("s3://data/a") == b"abc"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with inrush.Client(endpoint_url=origin.endpoint, share="host") as other, \
            pytest.raises(inrush.Error, match="SignatureDoesNotMatch|signature") as caught:
        other.read("s3://data/a")
    assert caught.value.kind in ("credentials", "permission_denied")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with inrush.Client(endpoint_url=origin.endpoint, share="host") as without, \
            pytest.raises(inrush.Credentials):
        without.read("s3://data/a")
    assert client.read("s3://data/a") == b"abc"
    client.close()
    until(lambda: not engines(origin.endpoint))


def reads(client: inrush.Client, answers: Any) -> None:
    found = {result.source.uri[5:]: result.data
             for result in client.read_many(client.list("s3://data/small/"))}
    answers.put((found == SMALL and client.read("s3://data/big") == BIG,
                 [name for name in threads() if name != "inrush-control"]))
    # The parent asks what there is before it lets it go.
    signal.pause()


@pytest.mark.parametrize("method", METHODS)
def test_processes_share_one_engine(shared: Any, method: str) -> None:
    context = multiprocessing.get_context(method)
    client = shared.client(share=("host", 0, 8))
    # A server of forks has the environment that this process had when it was started.
    parents = 0 if method == "forkserver" else 1
    if parents:
        # One that is forked has a copy of what is its parent's.
        assert client.read("s3://data/a") == b"abc"
    answers = context.Queue()
    children = [context.Process(target=reads, args=(client, answers), daemon=True)
                for _ in range(8)]
    for child in children:
        child.start()
    assert [answers.get(timeout=60) for _ in children] == [(True, [])] * 8
    engine, = engines(shared.endpoint)
    assert memories(engine) == parents + len(children)
    # What a child has inherited keeps no connection of its parent's.
    client.close()
    until(lambda: memories(engine) == len(children))
    for child in children:
        child.kill()
        child.join()
    until(lambda: memories(engine) == 0)


WORKER = """
import os, sys
import inrush
small, big = sys.argv[1:]
client = inrush.Client(share=("host", 0, 16), endpoint_url=small)
sums = {}
print("ready", flush=True)
while True:
    try:
        for result in client.read_many(f"s3://data/small/{at:04}" for at in range(500)):
            sums.setdefault(result.source, result.data)
            if sums[result.source] != result.data:
                print("WRONG", result.source, flush=True)
        data = client.read("s3://data/big")
        if sums.setdefault("big", data) != data or len(data) != int(big):
            print("WRONG big", flush=True)
        print("round", flush=True)
    except inrush.HostError as error:
        print("ended", flush=True)
"""


class Workers:
    """Processes that read all the time, each of which a thread listens to."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint, self.lines = endpoint, 0
        self.wrong: list[str] = []
        self.ended = 0
        self.running: list[subprocess.Popen[str]] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        child = subprocess.Popen([sys.executable, "-c", WORKER, self.endpoint, str(len(BIG))],
                                 stdout=subprocess.PIPE, text=True)
        self.running.append(child)
        self._threads.append(threading.Thread(target=self._listen, args=(child,)))
        self._threads[-1].start()

    def _listen(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            self.lines += line == "round\n"
            self.ended += line == "ended\n"
            if line.startswith("WRONG"):
                self.wrong.append(line)

    def kill(self, child: subprocess.Popen[str]) -> None:
        child.kill()
        child.wait()
        self.running.remove(child)

    def stop(self) -> None:
        for child in list(self.running):
            self.kill(child)
        for thread in self._threads:
            thread.join()


#: For a longer run by hand: how many processes there are, and how many of them are killed. Every
#: fourth is an engine.
PROCESSES = int(os.environ.get("INRUSH_TEST_PROCESSES", "6"))
KILLS = int(os.environ.get("INRUSH_TEST_KILLS", "12"))


def test_killed_clients_and_engines_leave_nothing(shared: Any) -> None:
    chance = random.Random(5)
    in_memory = set(os.listdir("/dev/shm"))
    workers = Workers(shared.endpoint)
    try:
        for _ in range(PROCESSES):
            workers.start()
        for kill in range(KILLS):
            # A few have read everything since the last time.
            goal = workers.lines + 6
            until(lambda goal=goal: workers.lines >= goal or bool(workers.wrong))
            if kill % 4 == 3:
                ended = workers.ended
                engine, = engines(shared.endpoint)
                os.kill(engine, signal.SIGKILL)
                until(lambda ended=ended: workers.ended > ended)
            else:
                workers.kill(chance.choice(workers.running))
                workers.start()
        goal = workers.lines + 2 * len(workers.running)
        until(lambda: workers.lines >= goal)
        engine, = engines(shared.endpoint)
        # Of the dead nothing is kept; each other one has one connection.
        until(lambda: memories(engine) == len(workers.running))
        assert not workers.wrong
    finally:
        workers.stop()
    until(lambda: not engines(shared.endpoint))
    # Other programs may have taken theirs away, or have some for a while.
    until(lambda: set(os.listdir("/dev/shm")) <= in_memory)


def test_an_engine_that_is_killed_fails_what_is_under_way(shared: Any) -> None:
    with shared.client(share="host") as client:
        results = client.read_many([f"s3://{name}" for name in SMALL] * 20)
        next(results)
        engine, = engines(shared.endpoint)
        os.kill(engine, signal.SIGKILL)
        with pytest.raises(inrush.HostError, match=rf"process {engine}\) has ended.*read again"):
            list(results)
        assert client.read("s3://data/big") == BIG
        another, = engines(shared.endpoint)
        assert another != engine


def test_what_waits_ends_by_close_and_by_ctrl_c(serve: Serve) -> None:
    silent = threading.Event()
    server = Answers(lambda request: None if silent.wait(60) else None)
    try:
        client = inrush.Client(endpoint_url=server.endpoint, no_sign_request=True, share="host")
        closing = threading.Timer(0.3, client.close)
        closing.start()
        with pytest.raises(inrush.Closed):
            client.read(inrush.ObjectInfo("s3://data/a", 3, '"e"'))
        closing.join()
        client = inrush.Client(endpoint_url=server.endpoint, no_sign_request=True, share="host")
        main = threading.main_thread().ident
        interrupt = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            client.read("s3://data/a")
        interrupt.join()
        client.close()
        until(lambda: not engines(server.endpoint))
    finally:
        silent.set()
        server.close()


def test_many_questions_and_failures_end_by_themselves(shared: Any) -> None:
    names = [f"s3://data/small/{at:04}" for at in range(500)] * 7
    with shared.client(share=("host", 0, 64)) as client:
        # More than may be asked at a time, and each object is several reads.
        found = client.read_many(["s3://data/none", *names, "s3://data/big", "s3://data/big"],
                                 return_exceptions=True)
        kinds = [getattr(result.error, "kind", len(result.data)) for result in found]
        assert kinds[0] == "not_found" and kinds[-2:] == [len(BIG)] * 2 and len(kinds) == 3503

        async def stats() -> list[Any]:
            return await asyncio.gather(*(client.async_stat(name) for name in names),
                                        client.async_stat("s3://data/none"),
                                        return_exceptions=True)

        *infos, failed = asyncio.run(stats())
        assert [info.size for info in infos] == [len(data) for data in SMALL.values()] * 7
        assert isinstance(failed, inrush.NotFound)


def test_an_event_loop_and_a_file_go_on_with_another_engine(shared: Any) -> None:
    async def reads() -> None:
        assert await client.async_read("s3://data/a") == b"abc"
        for process in engines(shared.endpoint):
            os.kill(process, signal.SIGKILL)
        with pytest.raises(inrush.HostError):
            await client.async_read("s3://data/big")
        assert await client.async_read("s3://data/big") == BIG

    with shared.client(share="host") as client:
        asyncio.run(reads())
        with client.open("s3://data/big", sequential=True) as file:
            assert file.read(1000) == BIG[:1000]
            for process in engines(shared.endpoint):
                os.kill(process, signal.SIGKILL)
            with contextlib.suppress(inrush.HostError):
                # What was read ahead is there, or is not.
                assert file.read() == BIG[1000:]
            file.seek(5)
            assert file.read() == BIG[5:]


def test_a_read_that_waits_for_its_bucket_is_cancelled_at_once(serve: Serve) -> None:
    silent = threading.Event()
    server = Answers(lambda request: None if silent.wait(60) else None)
    info = inrush.ObjectInfo("s3://data/a", 3, '"e"')

    async def read() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.async_read_into(info, bytearray(3)), 0.3)

    try:
        with inrush.Client(endpoint_url=server.endpoint, no_sign_request=True,
                           share="host") as client:
            asyncio.run(read())
            interrupt = threading.Timer(
                0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
            interrupt.start()
            with pytest.raises(KeyboardInterrupt):
                client.read(info)
            interrupt.join()
        until(lambda: not engines(server.endpoint))
    finally:
        silent.set()
        server.close()


def three_bytes(request: Any, status: int = 206) -> None:
    request.send_response(status)
    request.send_header("ETag", '"e"')
    request.send_header("Content-Range", "bytes 0-2/3")
    request.send_header("Content-Length", "3")
    request.end_headers()
    if request.command == "GET":
        request.wfile.write(b"abc")


def test_a_key_that_may_not_be_read_fails_alone() -> None:
    def answer(request: Any) -> None:
        three_bytes(request, 403 if request.path.endswith("secret") else 206)

    server = Answers(answer)
    infos = [inrush.ObjectInfo(f"s3://data/{key}", 3, '"e"') for key in ("secret", *"abc")]
    try:
        with inrush.Client(endpoint_url=server.endpoint, no_sign_request=True,
                           share="host") as client:
            results = client.read_many(infos, return_exceptions=True)
            assert [result.error and result.error.kind for result in results] == \
                ["permission_denied", None, None, None]
    finally:
        server.close()
    until(lambda: not engines(server.endpoint))


def test_reads_go_on_while_the_caller_works() -> None:
    held = threading.Semaphore(0)

    def answer(request: Any) -> None:
        held.release()
        three_bytes(request)

    server = Answers(answer)
    infos = [inrush.ObjectInfo(f"s3://data/{at}", 3, '"e"') for at in range(5000)]
    try:
        with inrush.Client(endpoint_url=server.endpoint, no_sign_request=True,
                           share="host") as client:
            results = client.read_many(infos)
            assert next(results).data == b"abc"
            # As many as are read ahead; and then as many again as were taken of them.
            for _ in range(2048):
                assert held.acquire(timeout=60)
            for _ in range(500):
                assert next(results).data == b"abc"
            for _ in range(480):
                assert held.acquire(timeout=60)
            results.close()
    finally:
        server.close()
    until(lambda: not engines(server.endpoint))


def test_memory_is_bounded_by_the_number_of_clients(shared: Any) -> None:
    with shared.client(share=("host", 3, 64)) as client:
        # 4 MiB, so in pieces of 1 MiB.
        assert client.read("s3://data/big") == BIG
        engine, = engines(shared.endpoint)
        sizes = [int(end, 16) - int(start, 16)
                 for line in Path(f"/proc/{engine}/maps").read_text().splitlines()
                 if "memfd:inrush-shared" in line
                 for start, end in [line.split()[0].split("-")]]
        assert sizes == [4 << 20]


def test_other_options_and_variables_are_another_engine(
        shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared.client(share="host") as one, shared.client(share="host", connections=3) as two:
        assert one.read("s3://data/a") == two.read("s3://data/a") == b"abc"
        monkeypatch.setenv("AWS_PROFILE_OF_NOBODY", "x")
        with shared.client(share="host") as three:
            assert three.read("s3://data/a") == b"abc"
            assert len(engines(shared.endpoint)) == 3


def connected(options: str) -> socket.socket:
    """A connection to the engine of these options."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.settimeout(60)
    one.connect(b"\0" + host.name(options))
    return one


def attached(options: str) -> socket.socket:
    one = connected(options)
    one.send(json.dumps({"Attach": {"version": inrush.__version__, "clients": 64}}).encode())
    answer, descriptors, _, _ = socket.recv_fds(one, 65536, 4)
    assert "Attached" in json.loads(answer) and len(descriptors) == 1
    os.close(descriptors[0])
    return one


def read_of(number: int = 0, length: int = 3, place: int = 0, key: str = "a") -> dict[str, Any]:
    info = {"bucket": "data", "key": key, "size": 3, "etag": None, "modified_us": None}
    return {"Read": {"number": number, "object": info, "group": None, "offset": 0,
                     "length": length, "place": place}}


@pytest.mark.parametrize("message", [
    b"\xff\xfe nonsense", b"{", b"[]" * 1000, b'{"Attach": 7}', b"x" * 60_000,
    json.dumps({"Attach": {"version": inrush.__version__, "clients": 2**64 - 1}}).encode(),
    json.dumps({"Attach": {"version": "0", "clients": 1}}).encode(),
    json.dumps(read_of(place=1 << 40)).encode(), json.dumps(read_of(length=2**63)).encode(),
    json.dumps(read_of(place=2**64 - 1)).encode(), json.dumps(read_of(length=0)).encode(),
    (json.dumps(read_of(0)) + json.dumps(read_of(1, 1, 2))).encode(),
    (json.dumps(read_of(0)) + json.dumps(read_of(0, 3, 4096))).encode(),
])
def test_who_does_not_keep_to_the_messages_is_disconnected(shared: Any, message: bytes) -> None:
    with shared.client(share="host") as client:
        options = host.options_of(client.options)
        assert client.read("s3://data/a") == b"abc"
        engine, = engines(shared.endpoint)
        with attached(options) as one:
            one.send(message)
            answers = []
            with contextlib.suppress(ConnectionResetError):
                while answer := one.recv(65536):
                    answers.append(answer)
            assert not any(b'"Failed"' in answer for answer in answers)
        assert client.read("s3://data/big") == BIG
        assert engines(shared.endpoint) == [engine]


def test_too_many_questions_are_refused(shared: Any) -> None:
    with shared.client(share="host") as client:
        options = host.options_of(client.options)
        assert client.read("s3://data/a") == b"abc"
        stat = json.dumps({"Stat": {"number": 1, "uri": "s3://data/a"}}).encode()
        with attached(options) as one, pytest.raises(OSError, match="reset|pipe"):
            while True:
                one.send(stat * 1000)
                # It may be that quick, and has no more than it may have then.
                one.send(stat * 1000)
                time.sleep(0.01)
        assert client.read("s3://data/big") == BIG


def test_without_shared_memory_each_has_its_own(serve: Serve) -> None:
    origin = serve(OBJECTS)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # An engine that may make no file of a megabyte; what is forked inherits that.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with origin.client(share=("host", 0, 2)) as client, \
                pytest.warns(RuntimeWarning, match="engine of its own.*memfd_create"):
            assert client.read("s3://data/big") == BIG
            assert client.limit()["part"] and "inrush-0" in threads()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    until(lambda: not engines(origin.endpoint))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_socket_of_another_user_is_not_used(shared: Any) -> None:
    client = shared.client(share="host")
    options = host.options_of(client.options)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(b"\0" + host.name(options))
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        listener.listen()
        signal.pause()
    try:
        # It is refused, or it is nobody's, as long as the other one does not listen yet.
        until(lambda: _listens(b"\0" + host.name(options)))
        with client, pytest.warns(RuntimeWarning, match="engine of its own.*denied"):
            assert client.read("s3://data/a") == b"abc"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        listener.close()


def _listens(address: bytes) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        with contextlib.suppress(ConnectionRefusedError):
            one.connect(address)
            return True
    return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_gets_no_answer(shared: Any) -> None:
    with shared.client(share="host") as client:
        options = host.options_of(client.options)
        assert client.read("s3://data/a") == b"abc"
        address = b"\0" + host.name(options)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setuid(65534)
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
                    one.settimeout(30)
                    one.connect(address)
                    attach = {"Attach": {"version": inrush.__version__, "clients": 1}}
                    try:
                        one.send(json.dumps(attach).encode())
                        code = 0 if one.recv(65536) == b"" else 2
                    except ConnectionError:
                        code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.read("s3://data/a") == b"abc"
