"""moto as an S3 origin: another project's reading of the API, in memory.

Objects are PUT by plain HTTP and clients sign with dummy credentials: moto looks whether there is a
signature, not whether it is right.
What moto lists is checked against what was put, and keys that it does not hold as given are named
and taken out, so that a run is judged by what the server really has.
"""

from __future__ import annotations

import http.client
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlencode

from lab import install
from lab.process import LabError, Server, free_port
from lab.servers import Loopback
from lab.servers.listing import NAMESPACE, Entry

READY_SECONDS = 30.0
REQUEST_SECONDS = 60.0
PAGES_MAX = 100
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
               "AWS_REGION": "us-east-1"}
ANY_SIGNATURE = {"Authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/"
                                  "aws4_request, SignedHeaders=host, Signature=0"}


@dataclass(frozen=True)
class Moto(Loopback):
    """A running moto and one connection to fill it."""

    VIRTUAL_DOMAIN = "localhost"
    connection: http.client.HTTPConnection

    def ask(self, method: str, target: str, body: bytes | None = None) -> bytes:
        """One request that has to succeed; the answer's body."""
        self.connection.request(method, target, body=body, headers=ANY_SIGNATURE)
        response = self.connection.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise LabError(f"moto: {method} {target}: {response.status}: {answer[:200]!r}")
        return answer

    def put_all(self, bucket: str, entries: Sequence[Entry]) -> None:
        """Makes `bucket` and puts every entry into it."""
        self.ask("PUT", f"/{bucket}")
        for entry in entries:
            self.ask("PUT", f"/{bucket}/{quote(entry.key, safe='/~')}", entry.path.read_bytes())

    def delete(self, bucket: str, key: str) -> None:
        """Takes one key out."""
        self.ask("DELETE", f"/{bucket}/{quote(key, safe='/~')}")

    def keys(self, bucket: str) -> list[tuple[str, int]]:
        """Keys and sizes as moto lists them."""
        found: list[tuple[str, int]] = []
        query = {"list-type": "2", "encoding-type": "url"}
        for _ in range(PAGES_MAX):
            page = ElementTree.fromstring(self.ask("GET", f"/{bucket}?{urlencode(query)}"))
            for item in page.iter(f"{{{NAMESPACE}}}Contents"):
                key = unquote(item.findtext(f"{{{NAMESPACE}}}Key", ""))
                found.append((key, int(item.findtext(f"{{{NAMESPACE}}}Size", "-1"))))
            following = page.findtext(f"{{{NAMESPACE}}}NextContinuationToken")
            if not following:
                return found
            query["continuation-token"] = following
        raise LabError(f"moto: more than {PAGES_MAX} pages")

    def holds(self, entry: Entry, bucket: str) -> bool:
        """True when a plain GET gives the entry's bytes."""
        try:
            answer = self.ask("GET", f"/{bucket}/{quote(entry.key, safe='/~')}")
        except LabError:
            return False
        return answer == entry.path.read_bytes()


def listening(port: int) -> bool:
    """True when something answers on `port`."""
    probe = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        probe.request("GET", "/moto-api/")
        return probe.getresponse().status < 500
    except OSError:
        return False
    finally:
        probe.close()


@contextmanager
def serve(temp: Path) -> Iterator[Moto]:
    """An empty moto on a free port."""
    temp.mkdir(parents=True, exist_ok=True)
    port = free_port()
    server = Server([install.program("moto"), "-H", "127.0.0.1", "-p", str(port)],
                    temp / "moto.log")
    try:
        if not server.wait_ready(lambda: listening(port), READY_SECONDS):
            raise LabError(f"moto does not start: {server.last_words()}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_SECONDS)
        yield Moto(port, connection)
        connection.close()
    finally:
        server.stop()


def not_held(moto: Moto, bucket: str, entries: Sequence[Entry], probed: str) -> list[Entry]:
    """Entries that moto lists under another name or size; below `probed`, also by their bytes."""
    listed = set(moto.keys(bucket))
    return [entry for entry in entries
            if (entry.key, entry.size) not in listed
            or (entry.key.startswith(probed) and not moto.holds(entry, bucket))]
