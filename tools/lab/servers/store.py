"""A server of another project that keeps objects, and the lab's own requests to it.

Objects are put by signed requests (AWS Signature Version 4), a few at a time. What a server lists
and sends is checked against what was put, so that a run is judged by what the server really has.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import http.client
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote_plus, urlencode

from lab.process import LabError, Server
from lab.servers import Loopback
from lab.servers.listing import NAMESPACE, Entry

READY_SECONDS = 60.0
REQUEST_SECONDS = 60.0
PAGES_MAX = 100
CONNECTIONS = 4
REGION = "us-east-1"
ACCESS_KEY, SECRET_KEY = "inrushlab", "inrush-lab-secret"
VERSIONING = (f'<VersioningConfiguration xmlns="{NAMESPACE}"><Status>Enabled</Status>'
              "</VersioningConfiguration>").encode()


@dataclass(frozen=True)
class Request:
    """What a server is asked. `path` and `query` are encoded, and the query is in order; the names
    of headers are in lower case."""

    method: str
    path: str
    query: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def target(self) -> str:
        """What the request line has."""
        return f"{self.path}?{self.query}" if self.query else self.path


@dataclass(frozen=True)
class Keys:
    """Whose requests they are."""

    access: str = ACCESS_KEY
    secret: str = SECRET_KEY

    def environment(self) -> dict[str, str]:
        """Where programs find them."""
        return {"AWS_ACCESS_KEY_ID": self.access, "AWS_SECRET_ACCESS_KEY": self.secret,
                "AWS_REGION": REGION}

    def signed(self, request: Request, host: str) -> dict[str, str]:
        """The headers of a request to this host."""
        now = datetime.datetime.now(datetime.timezone.utc)
        own = {"host": host, "x-amz-content-sha256": hashlib.sha256(request.body).hexdigest(),
               "x-amz-date": f"{now:%Y%m%dT%H%M%SZ}"}
        headers = dict(sorted({**request.headers, **own}.items()))
        names = ";".join(headers)
        lines = [f"{name}:{value}" for name, value in headers.items()]
        canonical = "\n".join([request.method, request.path, request.query, *lines, "", names,
                               headers["x-amz-content-sha256"]])
        scope = [f"{now:%Y%m%d}", REGION, "s3", "aws4_request"]
        key = f"AWS4{self.secret}".encode()
        for word in scope:
            key = hmac.digest(key, word.encode(), "sha256")
        text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], "/".join(scope),
                          hashlib.sha256(canonical.encode()).hexdigest()])
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        return {**headers, "Authorization": f"AWS4-HMAC-SHA256 Credential={self.access}/"
                f"{'/'.join(scope)}, SignedHeaders={names}, Signature={signature}"}


@dataclass(frozen=True)
class Answer:
    """What a server says."""

    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Store(Loopback):
    """A running server that keeps objects."""

    VIRTUAL_DOMAIN = "s3.lab.localhost"
    name: str
    keys: Keys = Keys()
    other: Keys | None = None
    """Of a user of another account, which has buckets of its own."""
    tenant: str = ""
    """The other account's name, by which everybody can address its buckets: `TENANT:BUCKET`."""
    misread: str = ""
    """Characters that keys cannot have there."""
    has_virtual_style: bool = True
    checks_signatures: bool = True
    keeps_versions: bool = True

    def of_other(self) -> Store:
        """The server, asked by the other user."""
        assert self.other
        return replace(self, keys=self.other)

    def answer(self, method: str, path: str, query: Mapping[str, str] | None = None,
               body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """One request over a connection of its own; `path` is not encoded."""
        words = urlencode(sorted((query or {}).items()), quote_via=quote, safe="~")
        request = Request(method, quote(path, safe="/~"), words, body, headers or {})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_SECONDS)
        try:
            connection.request(method, request.target, body=body or None,
                               headers=self.keys.signed(request, f"127.0.0.1:{self.port}"))
            response = connection.getresponse()
            return Answer(response.status, response.read(),
                          {name.lower(): value for name, value in response.getheaders()})
        except (OSError, http.client.HTTPException) as error:
            raise LabError(f"{self.name}: {method} {path}: {error!r}") from error
        finally:
            connection.close()

    def ask(self, method: str, path: str, query: Mapping[str, str] | None = None,
            body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """A request that has to succeed."""
        answer = self.answer(method, path, query, body, headers)
        if answer.status >= 300:
            raise LabError(f"{self.name}: {method} {path}: {answer.status}: {answer.body[:200]!r}")
        return answer

    def put_all(self, bucket: str, entries: Sequence[Entry], probed: str) -> list[Entry]:
        """Makes `bucket` and puts every entry into it, a few at the same time; the entries in the
        order in which they are listed then. Names and sizes have to be those of the entries, and
        below `probed` the bytes, too."""
        self.ask("PUT", f"/{bucket}")

        def put(entry: Entry) -> None:
            self.ask("PUT", f"/{bucket}/{entry.key}", body=entry.path.read_bytes())

        with ThreadPoolExecutor(CONNECTIONS) as threads:
            list(threads.map(put, entries))
        by_key = {entry.key: entry for entry in entries}
        listed = self.listed(bucket)
        found = [by_key[key] for key, size in listed if key in by_key and size == by_key[key].size]
        wrong = {*dict(listed), *by_key} - {entry.key for entry in found} | {
            entry.key for entry in found
            if entry.key.startswith(probed) and not self.holds(entry, bucket)}
        if wrong or len(found) != len(entries):
            raise LabError(f"{self.name} does not hold what was put: {sorted(wrong)}")
        return found

    def put_in_parts(self, bucket: str, key: str, body: bytes, part_bytes: int) -> None:
        """Puts an object as parts of this length, the last one of what is left, each with its
        CRC-32, as the AWS command line does."""
        path = f"/{bucket}/{key}"
        # Not all servers have their elements in the namespace of S3.
        begun = ElementTree.fromstring(self.ask(
            "POST", path, {"uploads": ""}, headers={"x-amz-checksum-algorithm": "CRC32"}).body)
        upload = begun.findtext("{*}UploadId", "")
        parts = []
        for number, start in enumerate(range(0, len(body), part_bytes), 1):
            part = body[start:start + part_bytes]
            crc32 = base64.b64encode(zlib.crc32(part).to_bytes(4, "big")).decode()
            done = self.ask("PUT", path, {"partNumber": str(number), "uploadId": upload}, part,
                            {"x-amz-checksum-crc32": crc32})
            parts.append(f"<Part><PartNumber>{number}</PartNumber>"
                         f"<ETag>{done.headers['etag']}</ETag>"
                         f"<ChecksumCRC32>{crc32}</ChecksumCRC32></Part>")
        self.ask("POST", path, {"uploadId": upload},
                 f'<CompleteMultipartUpload xmlns="{NAMESPACE}">{"".join(parts)}'
                 "</CompleteMultipartUpload>".encode())

    def listed(self, bucket: str) -> list[tuple[str, int]]:
        """Keys and sizes as the server lists them, in its order."""
        found: list[tuple[str, int]] = []
        query = {"list-type": "2", "encoding-type": "url"}
        for _ in range(PAGES_MAX):
            page = ElementTree.fromstring(self.ask("GET", f"/{bucket}", query).body)
            is_encoded = page.findtext("{*}EncodingType") == "url"
            for item in page.iterfind("{*}Contents"):
                key = item.findtext("{*}Key", "")
                found.append((unquote_plus(key) if is_encoded else key,
                              int(item.findtext("{*}Size", "-1"))))
            following = page.findtext("{*}NextContinuationToken")
            if not following:
                return found
            query["continuation-token"] = following
        raise LabError(f"{self.name}: more than {PAGES_MAX} pages")

    def holds(self, entry: Entry, bucket: str) -> bool:
        """True when a plain GET gives the entry's bytes."""
        answer = self.answer("GET", f"/{bucket}/{entry.key}")
        return answer.status == 200 and answer.body == entry.path.read_bytes()

    def make_versioned(self, bucket: str) -> None:
        """Makes `bucket`, which keeps what is replaced from now on."""
        self.ask("PUT", f"/{bucket}")
        self.ask("PUT", f"/{bucket}", {"versioning": ""}, VERSIONING)


def answers(port: int) -> bool:
    """True when something answers on `port`, and with no error of its own."""
    probe = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        probe.request("GET", "/")
        return probe.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        probe.close()


@contextmanager
def until_left(server: Server, name: str, port: int, seconds: float = READY_SECONDS
               ) -> Iterator[None]:
    """While inside, the child serves on `port`."""
    try:
        if not server.wait_ready(lambda: answers(port), seconds):
            raise LabError(f"{name} does not start: {server.last_words()}")
        yield
    finally:
        server.stop()
