"""Options of a client are those of the command, and proxies those of the environment."""

from __future__ import annotations

import base64
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import inrush
import pytest
from common import Answers, pattern

Serve = Callable[..., Any]
BIG = pattern(20_000_000)
#: Of the client alone: where it is one of several of a machine, and what is refused.
OWN = {"share", "unknown"}


@pytest.fixture
def asked() -> Iterator[tuple[Answers, list[tuple[str, Any]]]]:
    """A server of one object of 4 bytes, and the path and the head of each request."""
    seen: list[tuple[str, Any]] = []

    def answer(request: Any) -> None:
        seen.append((request.path, request.headers))
        whole = request.command == "HEAD"
        request.send_response(200 if whole else 206)
        request.send_header("Content-Length", "4")
        request.send_header("ETag", '"e"')
        if not whole:
            request.send_header("Content-Range", "bytes 0-3/4")
        request.end_headers()
        request.wfile.write(b"" if whole else b"data")

    server = Answers(answer)
    yield server, seen
    server.close()


def test_they_are_options_of_the_command() -> None:
    text = subprocess.run([sys.executable, "-m", "inrush", "get", "--help"], check=True,
                          capture_output=True, text=True).stdout
    of_command = set(re.findall(r"--([a-z][a-z0-9-]+)", text))
    names = set(inspect.signature(inrush.Client).parameters)
    assert {name.replace("_", "-") for name in names - OWN} <= of_command
    # And it has all of them that are not about files, runs and their reports.
    # A client has one set of credentials for a bucket, and grants are of folders.
    for title, others in (("Server", {"access_grants"}), ("Resources", {"part_size"})):
        part = re.search(rf"^{title}:\n((?: .*\n|\n)*)", text, re.MULTILINE)
        assert part, text
        options = re.findall(r"^ +(?:-\w, )?--([a-z-]+)", part[1], re.MULTILINE)
        assert len(options) > 5
        assert {name.replace("-", "_") for name in options} - others <= names


@pytest.mark.parametrize(("options", "words"), [
    ({"memory": "1MiB"}, "memory 1048576 is too small; give at least "),
    ({"memory": "64MiB", "connections": 4096}, "is too small for 4096 connections; give at least"),
    ({"workers": 0}, "workers 0 is too small; give at least 1"),
    ({"connections": 0}, "connections 0 is too small; give at least 1"),
    ({"max_attempts": 1_000_000_000}, "attempts are more than"),
])
def test_options_that_no_engine_takes_are_refused_at_once(
        options: dict[str, Any], words: str) -> None:
    with pytest.raises(inrush.Error, match=words) as raised:
        inrush.Client(**options)
    assert isinstance(raised.value, ValueError)


def test_other_options_are_refused_with_advice() -> None:
    with pytest.raises(TypeError, match="'aws_access_key_id'.*AWS_SECRET_ACCESS_KEY.*profile="):
        inrush.Client(aws_access_key_id="AKID")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'end_point_url'; did you mean 'endpoint_url'?"):
        inrush.Client(end_point_url="http://127.0.0.1:1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no option 'xyz'$"):
        inrush.Client(xyz=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("style, address", [("path", "http://s3.example.test/data/a"),
                                            ("virtual", "http://data.s3.example.test/a")])
def test_a_proxy_of_the_environment_is_asked(
        asked: tuple[Answers, list[tuple[str, Any]]], monkeypatch: pytest.MonkeyPatch,
        style: str, address: str) -> None:
    server, seen = asked
    for name in ("http_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", server.endpoint.replace("//", "//me:hush@"))
    options: dict[str, Any] = {"endpoint_url": "http://s3.example.test", "no_sign_request": True,
                               "addressing_style": style, "request_payer": "requester"}
    with inrush.Client(**options) as client:
        assert client.read("s3://data/a") == b"data"
    assert {path for path, _ in seen} == {address}
    wanted = "Basic " + base64.b64encode(b"me:hush").decode()
    assert all(head["Proxy-Authorization"] == wanted for _, head in seen)
    assert all(head["x-amz-request-payer"] == "requester" for _, head in seen)
    seen.clear()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with inrush.Client(**{**options, "endpoint_url": server.endpoint}) as client:
        assert client.read("s3://data/a") == b"data"
    assert {path for path, _ in seen} == {"/data/a"}


def test_certificates_are_verified_by_default(serve: Serve, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    origin = serve({"data/big": BIG}, "--tls", "--ca-out", str(authority))
    origin.endpoint = origin.endpoint.replace("http:", "https:")
    for options in ({"ca_bundle": authority}, {"no_verify_ssl": True}):
        with origin.client(**options) as client:
            assert client.read("s3://data/big") == BIG
            place = tmp_path / next(iter(options))
            assert client.get("s3://data/big", place)["objects"] == 1 and place.exists()
    with origin.client(retry_for=0.0) as client:
        with pytest.raises(inrush.Error, match="certificate"):
            client.read("s3://data/big")


def test_a_customers_key_is_not_sent_in_the_clear(serve: Serve, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    secret = bytes(range(32))
    key = tmp_path / "key"
    key.write_bytes(secret)
    origin = serve({"data/a": b"data"})
    with origin.client(sse_c_key_file=key) as client:
        with pytest.raises(inrush.Usage, match="SSE-C key is not sent to http:"):
            client.read("s3://data/a")
    key.write_bytes(b"short")
    for wrong in (key, tmp_path / "none"):
        with origin.client(sse_c_key_file=wrong) as client:
            with pytest.raises(inrush.Usage, match=str(wrong)):
                client.read("s3://data/a")
    monkeypatch.setenv("INRUSH_SSE_C_KEY", base64.b64encode(secret).decode())
    with origin.client() as client, pytest.raises(inrush.Usage, match="is not sent") as caught:
        client.read("s3://data/a")
    assert base64.b64encode(secret).decode() not in str(caught.value)


def test_an_interface_is_taken_by_its_name(serve: Serve) -> None:
    origin = serve({"data/big": BIG})
    for names in ("lo", ["lo"]):
        with origin.client(interface=names) as client:
            assert client.read("s3://data/big") == BIG
    for wrong in ("none-such", ["lo", "lo"]):
        with origin.client(interface=wrong) as client:
            with pytest.raises(inrush.Usage, match="interface"):
                client.read("s3://data/big")


def test_attempts_are_as_many_as_were_wished() -> None:
    def answer(request: Any) -> None:
        request.send_response(200 if request.command == "HEAD" else 500)
        request.send_header("Content-Length", "4" if request.command == "HEAD" else "0")
        request.send_header("ETag", '"e"')
        request.end_headers()

    server = Answers(answer)
    with inrush.Client(endpoint_url=server.endpoint, no_sign_request=True, region="us-east-1",
                       max_attempts=2) as client:
        with pytest.raises(inrush.Error) as caught:
            client.read("s3://data/a")
    server.close()
    assert caught.value.attempts == 2
    assert sum(line.startswith("GET") for line in server.seen) == 2


@pytest.mark.parametrize("option, wrong", [
    ("addressing_style", "square"), ("request_payer", "me"), ("max_attempts", 0),
    ("max_attempts", 1001), ("list_requests", 0), ("list_requests", 1000)])
def test_what_is_no_option_is_refused(serve: Serve, option: str, wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError, inrush.Usage), match=option.split("_")[0]):
        serve({"data/a": b"data"}).client(**{option: wrong}).read("s3://data/a")


def test_without_tls_no_certificates_are_read(serve: Serve, monkeypatch: pytest.MonkeyPatch,
                                              tmp_path: Path) -> None:
    serve({"data/a": b"abc"})
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "missing.pem"))
    # The address is that of the environment.
    with inrush.Client() as client:
        assert client.read("s3://data/a") == b"abc"
