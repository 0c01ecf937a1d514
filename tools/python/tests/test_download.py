"""`get` and `sync`: in this process, with progress, an end at any time, and every error."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import inrush
import pytest
from common import WAIT_SECONDS_MAX, Answers, pattern, threads, until

Serve = Callable[..., Any]
OBJECTS = {f"data/n/{at}": pattern(at * 1000, at) for at in range(20)}
#: What does not come to its end while a test looks.
SLOW = {"data/n/slow": pattern(50_000_000), "data/n/small": b"small"}
#: A process that is still there after these seconds waits for the server: it has no end then.
SECONDS = 20


def children() -> set[str]:
    """The child processes of this one (proc_pid_stat(5))."""
    found: set[str] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            _, _, rest = stat.read_text().rpartition(")")
            if int(rest.split()[1]) == os.getpid():
                found.add(stat.parent.name)
    return found


def same(folder: Path, objects: dict[str, bytes], prefix: str = "data/n/") -> None:
    """These files, whole, and nothing else."""
    files = {str(path.relative_to(folder)): path.read_bytes()
             for path in folder.rglob("*") if path.is_file()}
    wanted = {key.removeprefix(prefix): data for key, data in objects.items()
              if key.startswith(prefix)}
    assert files == wanted


def test_get_and_sync(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inrush").mkdir()
    monkeypatch.chdir(tmp_path)
    with serve(OBJECTS).client() as client:
        reported: list[dict[str, Any]] = []
        report = client.get("s3://data/n/", "to", progress=reported.append, verify="off")
        assert (report["objects"], report["failed_objects"]) == (20, 0)
        assert reported[-1]["objects"] == 20
        assert reported[-1]["bytes"] == sum(map(len, OBJECTS.values()))
        assert {entry["object"]["key"] for entry in reported} == {f"n/{at}" for at in range(20)}
        assert Path("to/7").read_bytes() == OBJECTS["data/n/7"]
        Path("to/extra").write_bytes(b"")
        reported.clear()
        report = client.sync("s3://data/n/", Path("to"), delete=True, exclude=["1*"],
                             progress=reported.append)
        assert report["kept_objects"] == 9 and not Path("to/extra").exists()
        deleted = sum(entry["object"]["kind"] == "deleted" for entry in reported)
        assert report["deleted_files"] == deleted > 0
        several = client.get(["s3://data/n/1", "s3://data/n/2"], "two/")
        assert several["objects"] == 2
        # Of sync the destination is a folder, of get it may be the file.
        client.sync("s3://data/n/3", "three")
        client.get("s3://data/n/3", "file")
        assert Path("three/3").read_bytes() == Path("file").read_bytes() == OBJECTS["data/n/3"]


def test_it_is_this_process_and_progress_comes_meanwhile(serve: Serve, tmp_path: Path) -> None:
    seen: list[tuple[set[str], bool, bool]] = []

    def progress(reported: dict[str, Any]) -> None:
        assert reported["object"]["key"] == "n/small" and reported["object"]["status"] == "ok"
        is_there = (tmp_path / "small").read_bytes() == b"small"
        seen.append((children(), "inrush-0" in threads(), is_there))
        raise LookupError("mine")

    # The large one would take hours.
    with serve(SLOW, "--connection-rate", "10KB").client() as client:
        before = children()
        with pytest.raises(LookupError, match="mine"):
            client.get("s3://data/n/", tmp_path, progress=progress)
        assert seen == [(before, True, True)]
        # What it raised has ended the workers, too.
        assert "inrush-0" not in threads()
    assert not (tmp_path / "slow").exists()


def test_the_next_call_resumes(serve: Serve, tmp_path: Path) -> None:
    def stop(_: dict[str, Any]) -> None:
        until(lambda: sum(path.stat().st_blocks for path in tmp_path.rglob("*")) > 8000)
        raise LookupError

    # The small one is there at once, whatever else the machine does; the large one takes seconds.
    origin = serve(SLOW, "--connection-rate", "1MB")
    with origin.client() as client:
        with pytest.raises(LookupError):
            client.get("s3://data/n/", tmp_path, progress=stop)
    assert not (tmp_path / "slow").exists()
    with origin.client() as client:
        report = client.get("s3://data/n/", tmp_path)
        assert report["kept_objects"] == 1 and report["failed_objects"] == 0
    same(tmp_path, SLOW)


def test_many_objects_have_each_their_line(serve: Serve, tmp_path: Path) -> None:
    objects = {f"data/n/{at:05}": b"x" for at in range(6000)}
    reported: list[str] = []
    with serve(objects).client() as client:
        report = client.get("s3://data/n/", tmp_path / "to", report=tmp_path / "report",
                            progress=lambda one: reported.append(one["object"]["key"]))
        assert report["objects"] == 6000
    assert sorted(reported) == [f"n/{at:05}" for at in range(6000)]
    assert len((tmp_path / "report").read_text().splitlines()) == 6000


def test_several_run_at_the_same_time(serve: Serve, tmp_path: Path) -> None:
    with serve(OBJECTS).client(memory="64MiB") as client:
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(client.get, "s3://data/n/", tmp_path / str(at))
                     for at in range(4)]
            # Beside a read of the same client.
            assert client.read("s3://data/n/7") == OBJECTS["data/n/7"]
            assert all(call.result()["objects"] == 20 for call in calls)
    for at in range(4):
        same(tmp_path / str(at), OBJECTS)


@pytest.fixture
def mixed() -> Iterator[tuple[str, dict[str, int]]]:
    """A server of objects that fail, each with its status, and one that does not."""
    statuses = {"denied": 403, "good": 206, "none": 404}
    codes = {403: "AccessDenied", 404: "NoSuchKey"}

    def answer(request: BaseHTTPRequestHandler) -> None:
        path, _, query = request.path.partition("?")
        status, head, body = 200, {}, b""
        if "list-type" in query:
            keys = "".join(f"<Contents><Key>n/{key}</Key><Size>4</Size><ETag>&quot;e&quot;</ETag>"
                           "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                           for key in statuses)
            body = ("<ListBucketResult><Name>data</Name><Prefix>n/</Prefix><IsTruncated>false"
                    f"</IsTruncated>{keys}</ListBucketResult>").encode()
        else:
            status = statuses.get(path.rpartition("/")[2], 404)
            body = f"<Error><Code>{codes.get(status)}</Code></Error>".encode()
            if status == 206:
                head, body = {"ETag": '"e"', "Content-Range": "bytes 0-3/4"}, b"data"
        request.send_response(status)
        for name, value in {**head, "Content-Length": str(len(body))}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    server = Answers(answer)
    yield server.endpoint, statuses
    server.close()


def test_each_failed_object_has_its_error(mixed: tuple[str, Any], tmp_path: Path) -> None:
    options: dict[str, Any] = {"endpoint_url": mixed[0], "no_sign_request": True}
    with inrush.Client(**options) as client:
        with pytest.raises(inrush.ObjectsFailed, match="2 objects failed") as reported:
            client.get("s3://data/n/", tmp_path)
        for error in (reported.value, pickle.loads(pickle.dumps(reported.value))):
            assert isinstance(error, inrush.ObjectsFailed) and error.kind == "objects_failed"
            each = {one.uri: one for one in error.errors}
            assert set(each) == {"s3://data/n/denied", "s3://data/n/none"}
            assert isinstance(each["s3://data/n/denied"], inrush.PermissionDenied)
            assert isinstance(each["s3://data/n/none"], FileNotFoundError)
            assert each["s3://data/n/none"].kind == "not_found"
            assert all(str(uri) in str(one) for uri, one in each.items())
            assert error.report is not None and error.report["failed_objects"] == 2
        # One alone is what has failed.
        with pytest.raises(inrush.PermissionDenied) as alone:
            asyncio.run(client.async_get("s3://data/n/", tmp_path, exclude=["none"]))
        assert [one.uri for one in alone.value.errors] == ["s3://data/n/denied"]
        assert alone.value.uri == "s3://data/n/denied"
    assert [path.name for path in tmp_path.iterdir()] == ["good"]


def test_failures_are_those_of_the_command(serve: Serve, tmp_path: Path) -> None:
    with serve(OBJECTS).client() as client:
        with pytest.raises(inrush.NotFound, match="s3://data/none") as reported:
            client.get("s3://data/none", tmp_path)
        assert reported.value.report is not None and reported.value.report["exit_code"] == 4
        assert reported.value.uri == "s3://data/none"
        with pytest.raises(inrush.NotFound) as missing:
            client.get(["s3://data/n/1", "s3://data/none"], tmp_path)
        assert [error.uri for error in missing.value.errors] == ["s3://data/none"]
        for wrong in ("no_such_option", "dry_run", "metrics_file", "discard"):
            with pytest.raises(ValueError, match=wrong.split("_")[0]):
                client.get("s3://data/n/", tmp_path, **{wrong: True})
        with pytest.raises(inrush.Usage, match="standard input"):
            client.get([], tmp_path, files_from="-")
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(inrush.LocalIO):
            client.get("s3://data/n/", tmp_path / "file" / "x")
    with pytest.raises(inrush.Closed):
        client.get("s3://data/n/", tmp_path)


def test_options_are_those_of_the_command(serve: Serve, tmp_path: Path) -> None:
    origin = serve(OBJECTS)
    with origin.client(share=(0, 2)) as client:
        listed = tmp_path / "list"
        listed.write_text("s3://data/n/1\n# no\ns3://data/n/2\n")
        assert client.get([], tmp_path / "listed", files_from=listed)["objects"] == 2
        manifest = tmp_path / "manifest"
        manifest.write_text('[{"prefix": "s3://data/n/"}, "3", "4", "5"]')
        assert client.get([], tmp_path / "manifest-to", manifest=manifest)["objects"] == 3
        parts = [client.get("s3://data/n/", tmp_path / "parts", shard=f"{at}/2")["objects"]
                 for at in range(2)]
        assert parts == [10, 10]
        same(tmp_path / "parts", OBJECTS)
        both = [tmp_path / "one", tmp_path / "two"]
        client.get("s3://data/n/", both[0], spread_to=[both[1]])
        names = [path.name for folder in both for path in folder.iterdir() if path.is_file()]
        assert sorted(names) == sorted(str(at) for at in range(20))
        again = client.get("s3://data/n/", tmp_path / "parts", overwrite="always", no_resume=True)
        assert again["objects"] == 20
        # Options of a client are for this call alone.
        with pytest.raises(inrush.ConnectionFailed):
            client.get("s3://data/n/", tmp_path / "no", endpoint_url="http://127.0.0.1:1",
                       retry_for=0.0)
        report = client.get("s3://data/n/", tmp_path / "own", workers=1, connections=3,
                            stats=True, explain=True, verbose=True)
        assert report["objects"] == 20


def test_a_deadline_is_a_timeout(serve: Serve, tmp_path: Path) -> None:
    with serve(SLOW, "--connection-rate", "10KB").client() as client:
        with pytest.raises(TimeoutError, match="deadline") as reported:
            client.get("s3://data/n/slow", tmp_path / "x/", deadline="1s")
        assert isinstance(reported.value, inrush.Timeout)
    assert not (tmp_path / "x" / "slow").exists()


def interrupted(code: str, endpoint: str, is_due: Callable[[int], bool]) -> tuple[bytes, float]:
    """What a process of Python says that gets SIGINT when it is due, and the seconds to its end."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "AWS_ENDPOINT_URL": endpoint}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.PIPE) as child:
        try:
            until(lambda: is_due(child.pid))
            begun = time.monotonic()
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=SECONDS)
        finally:
            child.kill()
    return said, time.monotonic() - begun


@pytest.mark.parametrize("call", [
    "client.get('s3://data/n/', {!r})", "client.get('s3://data/n/', {!r}, progress=id)",
    "asyncio.run(client.async_get('s3://data/n/', {!r}))"])
def test_ctrl_c_ends_it(serve: Serve, tmp_path: Path, call: str) -> None:
    origin = serve(SLOW, "--connection-rate", "10KB")
    code = "import asyncio, inrush\nclient = inrush.Client(no_sign_request=True)\n" \
           + call.format(str(tmp_path)) + "\n"
    said, seconds = interrupted(code, origin.endpoint, lambda of: "inrush-0" in threads(of))
    assert said.strip().endswith(b"KeyboardInterrupt"), said.decode()
    assert seconds < SECONDS / 2
    # What is partly there has no name of its own.
    assert not (tmp_path / "slow").exists()


def test_ctrl_c_ends_what_waits_for_a_listing(tmp_path: Path) -> None:
    asked, ends = threading.Event(), threading.Event()

    def silent(_: BaseHTTPRequestHandler) -> None:
        asked.set()
        ends.wait()

    server = Answers(silent)
    try:
        code = "import inrush\ninrush.Client(no_sign_request=True).get('s3://data/n/', " \
               f"{str(tmp_path)!r})\n"
        said, _ = interrupted(code, server.endpoint, lambda _: asked.is_set())
        assert said.strip().endswith(b"KeyboardInterrupt"), said.decode()
    finally:
        ends.set()
        server.close()


def test_a_list_that_nobody_writes_holds_up_no_end(serve: Serve, tmp_path: Path) -> None:
    origin = serve(OBJECTS)
    os.mkfifo(tmp_path / "list")
    code = "import inrush\nclient = inrush.Client(no_sign_request=True)\n" \
           f"client.get([], {str(tmp_path / 'to')!r}, files_from={str(tmp_path / 'list')!r})\n"
    said, _ = interrupted(code, origin.endpoint, lambda of: "inrush-control" in threads(of))
    assert said.strip().endswith(b"KeyboardInterrupt"), said.decode()


def test_a_closed_client_ends_its_downloads(serve: Serve, tmp_path: Path) -> None:
    client = serve(SLOW, "--connection-rate", "10KB").client()
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(client.get, "s3://data/n/", tmp_path / "own", workers=1),
                 pool.submit(client.get, "s3://data/n/", tmp_path / "its")]
        until(lambda: all((tmp_path / of / "small").exists() for of in ("own", "its")))
        client.close()
        for call in calls:
            assert isinstance(call.exception(WAIT_SECONDS_MAX), inrush.Closed)
    until(lambda: not threads())
    assert not list(tmp_path.rglob("slow"))


def test_event_loops(serve: Serve, tmp_path: Path) -> None:
    async def work(client: inrush.Client) -> None:
        reported: list[int] = []
        reports = await asyncio.gather(
            client.async_get("s3://data/n/", tmp_path / "a",
                             progress=lambda one: reported.append(one["objects"])),
            client.async_get("s3://data/n/", tmp_path / "b"),
            client.async_sync("s3://data/n/", tmp_path / "c", include=["7"]))
        assert [report["objects"] for report in reports] == [20, 20, 1]
        assert reported == list(range(1, 21))
        (tmp_path / "c" / "extra").write_bytes(b"")
        report = await client.async_sync("s3://data/n/", tmp_path / "c", delete=True)
        assert (report["deleted_files"], report["kept_objects"]) == (1, 1)
        with pytest.raises(inrush.NotFound):
            await client.async_get("s3://data/none", tmp_path)

    with serve(OBJECTS).client() as client:
        asyncio.run(work(client))
    for name in ("a", "b"):
        same(tmp_path / name, OBJECTS)


def test_cancelled_is_over(serve: Serve, tmp_path: Path) -> None:
    async def work(client: inrush.Client) -> None:
        # The loop goes on meanwhile.
        task = asyncio.create_task(client.async_get("s3://data/n/", tmp_path))
        while not (tmp_path / "small").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "inrush-0" not in threads()

        def progress(_: dict[str, Any]) -> None:
            raise LookupError("mine")

        with pytest.raises(LookupError):
            await client.async_get("s3://data/n/", tmp_path, progress=progress)

    with serve(SLOW, "--connection-rate", "10KB").client() as client:
        asyncio.run(work(client))
    assert not (tmp_path / "slow").exists()


def test_a_fork_has_downloads_of_its_own(serve: Serve, tmp_path: Path) -> None:
    with serve(OBJECTS).client() as client:
        assert client.get("s3://data/n/", tmp_path / "parent")["objects"] == 20
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = int(client.get("s3://data/n/", tmp_path / "child")["objects"] != 20)
                client.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.get("s3://data/n/", tmp_path / "parent")["kept_objects"] == 20
    for name in ("parent", "child"):
        same(tmp_path / name, OBJECTS)
