"""Servers that redirect requests of objects to the nodes that have them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import inrush
import pytest
from common import Answers, pattern
from conftest import small_objects

OBJECTS = {"data/big": pattern(20_000_000), **small_objects(40)}


class Cluster:
    """A gateway before one node, and the Authorization headers that each of them was sent."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.keys: list[str | None] = []
        self.of_node: list[str | None] = []
        self.before_node = Answers(self.forward)
        self.gateway = Answers(self.redirect)

    def redirect(self, request: BaseHTTPRequestHandler) -> None:
        self.keys.append(request.headers["Authorization"])
        request.send_response(307)
        # Objects by way of a node that is watched, the rest as it is.
        to = self.before_node.endpoint if "prefix=" not in request.path else self.node
        request.send_header("Location", to + request.path)
        request.send_header("Content-Length", "0")
        request.end_headers()

    def forward(self, request: BaseHTTPRequestHandler) -> None:
        self.of_node.append(request.headers["Authorization"])
        request.send_response(302)
        request.send_header("Location", self.node + request.path)
        request.send_header("Content-Length", "0")
        request.end_headers()

    def client(self, **options: Any) -> inrush.Client:
        return inrush.Client(endpoint_url=self.gateway.endpoint, region="us-east-1", **options)


@pytest.fixture
def cluster(serve: Callable[..., Any]) -> Iterator[Cluster]:
    made = Cluster(serve(OBJECTS).endpoint)
    yield made
    made.gateway.close()
    made.before_node.close()
    # Signed for the gateway, which the user has named, and for nobody else.
    assert made.keys and all(made.keys)
    assert not any(made.of_node)


def test_all_ways_of_reading_follow_it(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.client() as client:
        assert client.stat("s3://data/big").size == len(OBJECTS["data/big"])
        assert client.read("s3://data/big") == OBJECTS["data/big"]
        assert client.read("s3://data/big", (7, 1000)) == OBJECTS["data/big"][7:1007]
        with client.open("s3://data/big") as file:
            file.seek(-1000, 2)
            assert file.read() == OBJECTS["data/big"][-1000:]
        listed = list(client.list("s3://data/train/"))
        assert [f"data/{info.key}" for info in listed] == sorted(small_objects(40))
        read = {f"data/{info.key}": bytes(one.data)
                for info, one in zip(listed, client.read_many(listed))}
        assert read == small_objects(40)
        client.get("s3://data/train/", tmp_path)
        assert {f"data/train/{file.name}": file.read_bytes() for file in tmp_path.iterdir()} == \
            small_objects(40)
    assert cluster.of_node


def test_it_is_followed_by_an_event_loop(cluster: Cluster) -> None:
    async def read() -> bytes:
        async with cluster.client() as client:
            return await client.async_read("s3://data/big")

    assert asyncio.run(read()) == OBJECTS["data/big"]


def test_a_node_without_the_object_is_named(cluster: Cluster) -> None:
    with cluster.client(retry_for=1.0) as client:
        with pytest.raises(inrush.NotFound) as caught:
            client.read("s3://data/nothing")
    assert caught.value.uri == "s3://data/nothing"
