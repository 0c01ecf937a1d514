"""The file system of fsspec: fsspec's own tests, s3fs as the measure, and programs that use it."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from common import Answers
from conftest import Origin, forget, require, small_objects

fsspec = require("fsspec")

from fsspec.tests.abstract import (AbstractFixtures, AbstractGetTests,  # noqa: E402
                                   AbstractOpenTests)

import inrush  # noqa: E402
from inrush import _client  # noqa: E402
from inrush.fsspec import InrushFileSystem, register_s3  # noqa: E402

Serve = Callable[..., Origin]


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """A server that can be written to."""
    server = require("moto.server").ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty bucket of that server, by boto3."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    s3 = require("boto3").resource("s3", endpoint_url=moto_endpoint, region_name="us-east-1")
    made = s3.Bucket("bkt")
    made.create()
    made.objects.all().delete()
    return made


class WithWriting(InrushFileSystem):
    """What fsspec's tests prepare their buckets with; nothing here is tested."""

    cachable = False
    bucket: Any = None

    def touch(self, path: str, truncate: bool = True, **_options: Any) -> None:
        self.pipe_file(path, b"")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_options: Any) -> None:
        self.bucket.put_object(Key=self._strip_protocol(path).partition("/")[2], Body=value)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """A bucket has no folders."""

    mkdir = makedirs

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        key = self._strip_protocol(path).partition("/")[2]
        self.bucket.objects.filter(Prefix=f"{key}/").delete()
        self.bucket.Object(key).delete()

    def _open(  # type: ignore[override]
            self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb":
            return super()._open(path, mode, **options)
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        system = self

        class Written(io.BytesIO):
            def close(self) -> None:
                if not self.closed:
                    system.pipe_file(path, self.getvalue())
                super().close()

        return Written()


class Fixtures(AbstractFixtures):  # type: ignore[misc,unused-ignore]
    """What fsspec's tests need."""

    @pytest.fixture
    def fs(self, bucket: Any, moto_endpoint: str) -> WithWriting:
        made = WithWriting(endpoint_url=moto_endpoint, region="us-east-1")
        made.bucket = bucket
        return made

    @pytest.fixture
    def fs_path(self) -> str:
        return "bkt"

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestGet(Fixtures, AbstractGetTests):  # type: ignore[misc,unused-ignore]
    """fsspec's tests of get."""


class TestOpen(Fixtures, AbstractOpenTests):  # type: ignore[misc,unused-ignore]
    """fsspec's test of open."""


def awkward_keys(count: int) -> list[str]:
    """Names with everything that some layer could take for something else. No name is the folder
    of another one, and no part is empty: there s3fs has rules of its own."""
    parts = ["a b", "a+b", "a%20b", "%", "%2F", "#", "?x=1", "&amp;", "<x>", "'", '"', "`", "\\",
             "[a]", "{1..3}", "*", "a*b", "!", "$HOME", "~", ";", ":", "@", "=", ",", "(x)", "|",
             "^", "é", "日本", "🙂", "e\u0301", "\u00a0", "a.b..c", "...", "-", "--x", "_", " ",
             " x", "x ", "\t", "A", "a", "0", "00", "%e9", "a\u200bb", "+", "x=1", "s3:", "http:"]
    folder_parts = ["a b", "%2F", "#", "[a]", "*", "é", "🙂", "a.b..c"]
    choose = random.Random(7)
    keys: set[str] = set()
    while len(keys) < count:
        depth = choose.randrange(1, 4)
        folders = [choose.choice(folder_parts) + "d" for _ in range(depth - 1)]
        keys.add("/".join([*folders, choose.choice(parts) + str(choose.randrange(40))]))
    return sorted(keys)


def test_a_thousand_awkward_keys_are_as_s3fs_has_them(bucket: Any, moto_endpoint: str) -> None:
    s3fs = require("s3fs")
    keys = awkward_keys(1000)
    for at, key in enumerate(keys):
        bucket.put_object(Key=key, Body=f"content {at}".encode())
    theirs = s3fs.S3FileSystem(endpoint_url=moto_endpoint, key="AKIDEXAMPLE", secret="secret",
                               skip_instance_cache=True)
    ours = InrushFileSystem(endpoint_url=moto_endpoint, region="us-east-1")

    def fields(entry: dict[str, Any]) -> Any:
        return (entry["name"], entry["size"], entry["type"], entry.get("ETag"),
                entry.get("LastModified"))

    found = ours.find("bkt", detail=True)
    assert len(found) == 1000
    assert [fields(entry) for entry in found.values()] == \
        [fields(entry) for entry in theirs.find("bkt", detail=True).values()]
    for (path, folders, files), (path_s3fs, folders_s3fs, files_s3fs) in zip(
            sorted(ours.walk("bkt")), sorted(theirs.walk("bkt")), strict=True):
        assert (path, sorted(folders), sorted(files)) == \
            (path_s3fs, sorted(folders_s3fs), sorted(files_s3fs))
        listed = sorted(map(fields, theirs.ls(path, detail=True)))
        assert sorted(map(fields, ours.ls(path))) == listed
        assert ours.isdir(path) and not ours.isfile(path)
    paths = [f"bkt/{key}" for key in keys]
    # Literally; `cat` takes some of these names for patterns, in both.
    assert ours.cat_ranges(paths, None, None) == [f"content {at}".encode() for at in range(1000)]
    for path in paths[::25]:
        assert fields(ours.info(path)) == fields(theirs.info(path))
        assert ours.exists(path) and ours.isfile(path)
        assert ours.cat_file(path, 2, -1) == theirs.cat_file(path, start=2, end=-1)
        with ours.open(path) as file:
            assert file.read() == theirs.cat_file(path)
    # `bkt/**` has the bucket itself here, as in other file systems of fsspec.
    for pattern in ("bkt/*d", "bkt/a*", "bkt/**/é*", "bkt/*/*1", "bkt/?d/*"):
        assert sorted(ours.glob(pattern)) == sorted(theirs.glob(pattern)), pattern


def test_folders_and_their_marks(bucket: Any, moto_endpoint: str) -> None:
    for key in ("a/", "a/b/", "a/b/c", "a/d", "e", "a.b", "empty/"):
        bucket.put_object(Key=key, Body=b"" if key.endswith("/") else key.encode())
    fs = InrushFileSystem(endpoint_url=moto_endpoint, region="us-east-1")
    assert sorted(fs.ls("bkt", detail=False)) == ["bkt/a", "bkt/a.b", "bkt/e", "bkt/empty"]
    assert sorted(fs.ls("inrush://bkt/a/", detail=False)) == ["bkt/a/b", "bkt/a/d"]
    assert fs.find("bkt") == ["bkt/a.b", "bkt/a/b/c", "bkt/a/d", "bkt/e"]
    assert sorted(fs.find("bkt/a", withdirs=True)) == ["bkt/a", "bkt/a/b", "bkt/a/b/c", "bkt/a/d"]
    assert fs.find("bkt/a/d") == ["bkt/a/d"] and fs.find("bkt/none") == []
    assert fs.find("bkt", prefix="a") == ["bkt/a.b", "bkt/a/b/c", "bkt/a/d"]
    assert fs.ls("bkt/e") == [fs.info("bkt/e")] and fs.ls("bkt/empty") == []
    assert fs.isdir("bkt/empty") and fs.isdir("bkt")
    for missing in ("bkt/none", "bkt/a/none"):
        assert not fs.exists(missing)
        for call in (fs.info, fs.ls, fs.cat_file, fs.open):
            with pytest.raises(FileNotFoundError):
                call(missing)


def test_names_may_be_empty(bucket: Any, moto_endpoint: str, tmp_path: Path) -> None:
    keys = ["/top", "a//b", "a//c//d", "a/e", "a///f"]
    for key in keys:
        bucket.put_object(Key=key, Body=key.encode())
    fs = InrushFileSystem(endpoint_url=moto_endpoint, region="us-east-1")
    paths = sorted(f"bkt/{key}" for key in keys)
    assert sorted(fs.find("bkt")) == paths
    assert [path for path, entry in fs.find("bkt", withdirs=True, detail=True).items()
            if entry["type"] == "file"] == paths
    walked = [f"{path}/{name}" for path, _, names in fs.walk("bkt") for name in names]
    assert sorted(walked) == paths
    assert sorted(f"{path}/{name}" for path, _, names in fs.walk("bkt", maxdepth=2, topdown=False)
                  for name in names) == ["bkt//top", "bkt/a/e"]
    assert list(fs.walk("bkt/a/e")) == [("bkt/a/e", [], [""])]
    assert fs.cat("bkt/a", recursive=True) == \
        {f"bkt/{key}": key.encode() for key in keys if key != "/top"}
    fs.get("bkt/a", str(tmp_path / "a"), recursive=True)
    found = {str(path.relative_to(tmp_path)): path.read_text()
             for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"a/b": "a//b", "a/c/d": "a//c//d", "a/e": "a/e", "a/f": "a///f"}
    bucket.put_object(Key="a/b", Body=b"another")
    with pytest.raises(FileExistsError, match="one file would be bkt/a//b and bkt/a/b"):
        fs.get("bkt/a", str(tmp_path / "a"), recursive=True)


def test_an_empty_bucket_is_a_folder(bucket: Any, moto_endpoint: str) -> None:
    fs = InrushFileSystem(endpoint_url=moto_endpoint, region="us-east-1")
    assert fs.exists("bkt") and fs.isdir("bkt") and not fs.isfile("bkt")
    assert fs.info("bkt/")["type"] == "directory"
    assert fs.ls("bkt") == fs.find("bkt") == fs.glob("bkt/*") == []
    assert list(fs.walk("bkt")) == [("bkt", [], [])]
    assert not fs.exists("no-such-bucket") and not fs.isdir("no-such-bucket")
    with pytest.raises(FileNotFoundError):
        fs.ls("no-such-bucket")


def test_what_cannot_be_asked_is_not_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(request: Any) -> None:
        request.send_response(403)
        request.send_header("Content-Length", "0")
        request.end_headers()

    server = Answers(refuses)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    try:
        fs = InrushFileSystem(anon=True, skip_instance_cache=True)
        asks: list[Callable[[str], Any]] = [
            fs.exists, fs.lexists, fs.isfile, fs.isdir, fs.find, fs.glob,
            lambda path: fs.find(path, withdirs=True), lambda path: list(fs.walk(path)),
            lambda path: fs.get(path, "/nowhere", recursive=True)]
        for ask in asks:
            with pytest.raises(PermissionError):
                ask("data/a*" if ask == fs.glob else "data/a")
        assert list(fs.walk("data/a", on_error="omit")) == []
        seen: list[OSError] = []
        assert list(fs.walk("data/a", on_error=seen.append)) == []
        assert isinstance(seen[0], PermissionError)
        with pytest.raises(PermissionError):
            list(fs.walk("data/a", on_error="raise"))

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(type(fs.client), "stat", interrupted)
        for ask in (fs.exists, fs.isfile, fs.isdir):
            with pytest.raises(KeyboardInterrupt):
                ask("data/a")
    finally:
        server.close()


def test_a_client_that_was_closed_is_made_again(
        serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = serve({"data/a": b"1"})
    monkeypatch.setattr(_client, "_default", None)
    monkeypatch.setattr(inrush, "default_client", _client.default_client)
    for options in ({}, {"requester_pays": True}):
        first = fsspec.filesystem("inrush", **options)
        first.client.close()
        assert fsspec.filesystem("inrush", **options).cat_file("data/a") == b"1"
        assert first.cat_file("data/a") == b"1"
    # One that was given is its owner's; the next one is another.
    given = origin.client()
    first = fsspec.filesystem("inrush", client=given)
    assert first.client is given
    given.close()
    with pytest.raises(inrush.Closed):
        first.cat_file("data/a")
    with origin.client() as other:
        assert fsspec.filesystem("inrush", client=other).cat_file("data/a") == b"1"


def test_ranges_are_those_of_slices(serve: Serve) -> None:
    data = bytes(range(200))
    serve({"data/a": data, "data/b": data * 3, "data/none": b""})
    fs = InrushFileSystem(skip_instance_cache=True)
    cuts = [None, 0, 1, 100, 199, 200, 201, -1, -200, -201]
    for start in cuts:
        for end in cuts:
            assert fs.cat_file("data/a", start, end) == data[start:end]
            assert fs.cat_file("data/none", start, end) == b""
    paths = ["data/a", "data/b", "data/gone", "data/a"]
    starts, ends = [0, 5, 0, None], [7, -9, 1, 3]
    out = fs.cat_ranges(paths, starts, ends)
    assert out[:2] == [data[:7], (data * 3)[5:-9]] and out[3] == data[:3]
    assert isinstance(out[2], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, starts, ends, on_error="raise")
    assert fs.cat_ranges(["data/a", "data/b"], 1, 3) == [data[1:3]] * 2
    with pytest.raises(ValueError):
        fs.cat_ranges(paths, [1], [2])
    assert fs.cat(["data/a", "data/gone"], on_error="omit") == {"data/a": data}


def test_a_download_has_its_name_when_it_is_complete(serve: Serve, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inrush.fsspec.PIECE_BYTES", 1000)
    data = os.urandom(2500)
    serve({"data/x/a": data, "data/x/b/c": b"", "data/x/b/d": data * 2})
    fs = InrushFileSystem(skip_instance_cache=True)
    fs.get("data/x", str(tmp_path / "x"), recursive=True)
    assert (tmp_path / "x/a").read_bytes() == data and (tmp_path / "x/b/c").read_bytes() == b""
    assert (tmp_path / "x/b/d").read_bytes() == data * 2
    other = tmp_path / "other"
    other.write_bytes(b"")
    assert (tmp_path / "x/a").stat().st_mode == other.stat().st_mode
    out = io.BytesIO()
    fs.get_file("data/x/a", out)
    assert out.getvalue() == data

    def fails(*_args: Any, **_options: Any) -> int:
        raise OSError("no")

    monkeypatch.setattr(type(fs.client), "read_into", fails)
    with pytest.raises(OSError, match="no"):
        fs.get_file("data/x/a", str(tmp_path / "x/a"))
    assert (tmp_path / "x/a").read_bytes() == data
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["a", "b"]


def test_it_only_reads_and_holds_no_keys(serve: Serve) -> None:
    origin = serve({"data/a": b"text\n"})
    fs = InrushFileSystem(endpoint_url=origin.endpoint, anon=True, default_block_size=5,
                          client_kwargs={"region_name": "eu-west-3"})
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat_file("data/a") == b"text\n"
    with fs.open("data/a", "r") as file:
        assert file.read() == "text\n"
    for mode in ("wb", "ab", "xb"):
        with pytest.raises(OSError, match="only reads"):
            fs.open("data/a", mode)
    for refused in (fs.rm, fs.rm_file, fs.mkdir, fs.makedirs, fs.rmdir, fs.touch):
        with pytest.raises(OSError, match="only reads"):
            refused("data/b")
    for refused in (fs.mv, fs.cp_file, fs.copy):
        with pytest.raises(OSError, match="only reads"):
            refused("data/a", "data/b")
    # Whatever its addresses begin with.
    for path in ("data/a", "inrush://data/a", "s3://data/a"):
        assert fs.exists(path) and fs.ls(path, detail=False) == ["data/a"]
    assert fs.isdir("s3://data") and fs.ls("s3://data/", detail=False) == ["data/a"]
    for option in ("key", "secret", "token"):
        with pytest.raises(ValueError, match="AWS_ACCESS_KEY_ID"):
            cast(Any, InrushFileSystem)(**{option: "AKID"})
    with pytest.raises(NotImplementedError):
        fs.ls("")


def test_addresses_of_s3_on_request(serve: Serve) -> None:
    serve({"data/a": b"1"})
    register_s3()
    try:
        fs, path = fsspec.core.url_to_fs("s3://data/a")
        assert isinstance(fs, InrushFileSystem) and path == "data/a"
        assert fs.unstrip_protocol(path) == "s3://data/a"
        with fsspec.open("s3a://data/a") as file:
            assert file.read() == b"1"
    finally:
        forget("s3", "s3a")


@pytest.fixture
def registered() -> None:
    """The protocol, as the installed package registers it."""
    fsspec.register_implementation("inrush", InrushFileSystem, clobber=True)


def test_tables_of_pandas_and_pyarrow(serve: Serve, registered: None) -> None:
    pandas, parquet = require("pandas"), require("pyarrow.parquet")
    dataset = require("pyarrow.dataset")
    frame = pandas.DataFrame({"a": range(1000), "b": [f"text {at}" for at in range(1000)]})
    files = {}
    for part in range(3):
        out = io.BytesIO()
        frame[part::3].to_parquet(out, row_group_size=100)
        files[f"data/table/part={part}/x.parquet"] = out.getvalue()
    serve(files | {"data/table.csv": frame.to_csv(index=False).encode()})
    read = pandas.read_parquet("inrush://data/table/part=1/x.parquet", columns=["a", "b"])
    assert read.equals(frame[1::3])
    assert pandas.read_csv("inrush://data/table.csv").equals(frame)
    fs = InrushFileSystem()
    table = dataset.dataset("data/table", filesystem=fs, partitioning="hive").to_table(
        filter=dataset.field("part") == 2, columns=["a"])
    assert table.column("a").to_pylist() == list(range(2, 1000, 3))
    whole = parquet.read_table("data/table", filesystem=fs)
    assert sorted(whole.column("a").to_pylist()) == list(range(1000))


def test_arrays_of_zarr(serve: Serve, registered: None, tmp_path: Path) -> None:
    zarr, numpy = require("zarr"), require("numpy")
    data = numpy.arange(10_000).reshape(100, 100)
    zarr.create_array(store=str(tmp_path / "array"), data=data, chunks=(30, 30))
    files = {f"data/array/{path.relative_to(tmp_path / 'array')}": path.read_bytes()
             for path in (tmp_path / "array").rglob("*") if path.is_file()}
    serve(files)
    array = zarr.open_array("inrush://data/array", mode="r")
    assert (array[:] == data).all() and (array[7:9, 40:] == data[7:9, 40:]).all()


def test_lines_and_tables_of_dask(serve: Serve, registered: None) -> None:
    bag = require("dask.bag")
    lines = [json.dumps({"n": at}) for at in range(500)]
    serve({f"data/lines/{part}.json": "\n".join(lines[part::5]).encode() for part in range(5)}
          | small_objects(2))
    found = bag.read_text("inrush://data/lines/*.json").map(json.loads).pluck("n")
    # Threads, and processes that are spawned.
    for scheduler in ("threads", "processes"):
        assert sorted(found.compute(scheduler=scheduler)) == list(range(500))


def test_ranges_of_what_is_no_object_are_errors_in_their_places(serve: Serve) -> None:
    serve({"data/a": b"0123456789"})
    found = fsspec.filesystem("inrush").cat_ranges(["data/a", "data", "data/none"], 2, 4)
    assert found[0] == b"23"
    assert isinstance(found[1], ValueError) and isinstance(found[2], FileNotFoundError)


def test_options_for_any_file_system_are_taken(serve: Serve) -> None:
    serve({"data/a": b"0123456789"})
    options = {"block_size": 1 << 20, "cache_type": "none", "cache_options": {},
               "default_fill_cache": False, "default_block_size": 5, "expand": True,
               "auto_mkdir": False, "loop": None, "batch_size": 5, "listings_expiry_time": 5}
    for name, value in options.items():
        fs = fsspec.filesystem("inrush", **{name: value})
        assert fs.cat_file("data/a") == b"0123456789"
    with fsspec.open("inrush://data/a", block_size=1 << 20, cache_type="none") as file:
        assert file.read() == b"0123456789"
    payer = fsspec.filesystem("inrush", requester_pays=True).client.options
    assert payer["request_payer"] == "requester"
    with pytest.raises(TypeError, match="did you mean 'region'"):
        fsspec.filesystem("inrush", regoin="eu-west-1")
