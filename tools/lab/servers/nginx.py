"""nginx as an S3 look-alike: objects are files, listings are static pages.

One worker process, `sendfile`, loopback only. GET, HEAD, Range and If-Match are nginx's own; the
rest of S3's reading side is in the configuration written here. Buckets answer in path style and,
on hosts named `BUCKET.<domain>`, in virtual-host style. Signatures are not looked at. After a 412
nginx closes the connection although its answer says keep-alive.

It sends with cubic, the kernel's default, wherever that is available: BBR discards what it measures
within less than its shortest round trip, which over loopback is nearly all, and then paces by the
acknowledgements that were delayed. A stream of 2 MiB ranges had 4.6 GB/s from it instead of 8, one
of 1 MiB ranges 0.8 instead of 5.5.

With an authority the same objects come over TLS too, by nginx's OpenSSL: each version has a port of
its own and a log that says what was agreed on. Both versions use AES-128-GCM alone, so that clients
that are compared do the same work, and both resume sessions by tickets.
"""

from __future__ import annotations

import http.client
import os
import resource
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lab.install import system_program
from lab.process import LabError, Server
from lab.servers import Loopback, listing
from lab.servers.authority import Authority

READY_SECONDS = 10.0
PORTS_TRIED = 5
BACKLOG = 4096
CONGESTION_CONTROL = b"cubic"
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
SUITES = {"TLSv1.2": "ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.3": "TLS_AES_128_GCM_SHA256"}
ERRORS = {
    400: ("InvalidArgument", "The continuation token or the prefix is not known here"),
    404: ("NoSuchKey", "The specified key does not exist."),
    405: ("MethodNotAllowed", "The specified method is not allowed against this resource."),
    412: ("PreconditionFailed", "At least one of the preconditions did not hold"),
    416: ("InvalidRange", "The requested range is not satisfiable"),
    501: ("NotImplemented", "Delimiters and start-after are not answered here"),
}
CONFIG = """\
{user}daemon off;
worker_processes 1;
worker_rlimit_nofile {files};
error_log {temp}/error.log warn;
pid {temp}/nginx.pid;
events {{ worker_connections {connections}; multi_accept on; }}
http {{
  log_format lab '$request_method $request_uri $status $body_bytes_sent "$http_range"';
  log_format tls '$ssl_protocol $ssl_cipher $ssl_session_reused '
                 '$request_method $request_uri $status $connection';
  access_log {access_log};
  client_body_temp_path {temp}/client_body;
  proxy_temp_path {temp}/proxy;
  fastcgi_temp_path {temp}/fastcgi;
  uwsgi_temp_path {temp}/uwsgi;
  scgi_temp_path {temp}/scgi;
  default_type application/octet-stream;
  types {{ }}
  sendfile on;
  tcp_nopush on;
  tcp_nodelay on;
  keepalive_timeout 300s;
  keepalive_requests 1000000;
  server_tokens off;
  etag on;
  merge_slashes off;
  large_client_header_buffers 8 32k;
  server_names_hash_bucket_size 256;
  map_hash_max_size 262144;
  map_hash_bucket_size 8192;
{maps}
{servers}
}}
"""
SERVER = """\
  server {{
    listen 127.0.0.1:{port}{options};
    server_name {name};
    root "{root}";
{secure}    add_header x-amz-request-id lab always;
{errors}
    location = /.lab/ready {{ return 204; }}
{buckets}
    location / {{ try_files $uri =404; }}
  }}
"""
SECURE = """\
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_protocols {version};
    {suite};
    ssl_session_cache shared:lab:4m;
    ssl_session_tickets on;
    access_log {log} tls;
"""
SUITE_DIRECTIVES = {"TLSv1.2": "ssl_ciphers", "TLSv1.3": "ssl_conf_command Ciphersuites"}
BUCKET = """\
    location = {at} {{
      set $lab_bucket {bucket};
      if ($lab_refused) {{ return 501; }}
      root "{pages}";
      default_type application/xml;
      try_files /$lab_page =400;
    }}
"""


@dataclass(frozen=True)
class Agreement:
    """What nginx logs of the TLS session under one request."""

    protocol: str
    suite: str
    reused: str
    """`r` when the session was resumed, else a dot."""
    connection: str
    """nginx's number of the connection."""


@dataclass(frozen=True)
class Nginx(Loopback):
    """A running look-alike."""

    VIRTUAL_DOMAIN = "s3.lab.localhost"
    temp: Path
    tls_ports: dict[str, int]
    """The port of each version of TLS; empty without an authority."""

    def tls_url(self, version: str) -> str:
        """The endpoint in path style over this version of TLS."""
        return f"https://127.0.0.1:{self.tls_ports[version]}"

    def tls_virtual_url(self, version: str) -> str:
        """The endpoint in virtual-host style over this version of TLS."""
        return f"https://{self.VIRTUAL_DOMAIN}:{self.tls_ports[version]}"

    def agreements(self, version: str, skip: int = 0) -> list[Agreement]:
        """What was agreed on for each request at this version's port, in order, but the first
        `skip`. A request is logged when its last byte has been sent: the end of the list may
        still be missing when a client has left."""
        lines = tls_log(self.temp, version).read_text(errors="replace").split("\n")[skip:-1]
        return [Agreement(*line.split(" ")[:3], line.rsplit(" ", 1)[1]) for line in lines]


def tls_log(temp: Path, version: str) -> Path:
    """The log of one version of TLS."""
    return temp / f"{version}.log"


def error_pages() -> str:
    """S3's XML for the statuses that nginx gives.

    Named locations that `return`: a file would meet If-Match and Range a second time.
    """
    lines = []
    for status, (code, message) in ERRORS.items():
        xml = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        lines.append(f"    error_page {status} @status{status};\n    location @status{status} "
                     f"{{ default_type application/xml; return {status} '{xml}'; }}")
    return "\n".join(lines)


def secure(temp: Path, version: str, authority: Authority) -> str:
    """What makes a server one that speaks this version of TLS."""
    return SECURE.format(
        certificate=authority.certificate, key=authority.key, version=version,
        suite=f"{SUITE_DIRECTIVES[version]} {SUITES[version]}", log=tls_log(temp, version))


def servers(root: Path, temp: Path, port: int, buckets: Sequence[str], security: str = "") -> str:
    """The path-style server and one virtual host for each bucket, on one port."""
    errors, pages = error_pages(), temp / "pages"
    ssl = " ssl" if security else ""
    both = "".join(BUCKET.format(at=f"/{bucket}{end}", bucket=bucket, pages=pages)
                   for bucket in buckets for end in ("", "/"))
    blocks = [SERVER.format(port=port, options=f"{ssl} default_server backlog=4096", name="_",
                            root=root, secure=security, errors=errors, buckets=both)]
    for bucket in buckets:
        one = BUCKET.format(at="/", bucket=bucket, pages=pages)
        blocks.append(SERVER.format(port=port, options=ssl, name=f"{bucket}.{Nginx.VIRTUAL_DOMAIN}",
                                    root=root / bucket, secure=security, errors=errors,
                                    buckets=one))
    return "".join(blocks)


def write_config(root: Path, found: Nginx, choices: dict[str, str], buckets: Sequence[str],
                 log_requests: bool, authority: Authority | None) -> Path:
    """`nginx.conf` in its folder, with everything nginx writes there too."""
    temp = found.temp
    blocks = [servers(root, temp, found.port, buckets)]
    if authority:
        blocks += [servers(root, temp, port, buckets, secure(temp, version, authority))
                   for version, port in found.tls_ports.items()]
    files = min(16_384, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    config = CONFIG.format(
        user="user root root;\n" if os.geteuid() == 0 else "", temp=temp, files=files,
        connections=files // 2, access_log=f"{temp}/access.log lab" if log_requests else "off",
        maps=listing.maps(choices), servers="".join(blocks))
    path = temp / "nginx.conf"
    path.write_text(config)
    return path


def answers(port: int) -> bool:
    """True when something on `port` says that it is this look-alike."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/.lab/ready")
        return connection.getresponse().status == 204
    except OSError:
        return False
    finally:
        connection.close()


def listen() -> socket.socket:
    """A listening socket on a free loopback port, for nginx to take over."""
    opened = socket.socket()
    opened.bind(("127.0.0.1", 0))
    with suppress(OSError):
        # nginx has no setting for this; what is accepted has what listens.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION_CONTROL)
    opened.listen(BACKLOG)
    opened.setblocking(False)
    return opened


@contextmanager
def serve(root: Path, temp: Path, prefixes: Mapping[str, Sequence[str]], *,
          log_requests: bool = False, authority: Authority | None = None) -> Iterator[Nginx]:
    """Serves `root`/BUCKET for each bucket in `prefixes`, which names the prefixes to list; with
    an authority over TLS too.

    The trees must be complete: listings are made once, before the server starts.
    """
    program = system_program("nginx")
    temp.mkdir(parents=True, exist_ok=True)
    choices: dict[str, str] = {}
    for bucket, wanted in prefixes.items():
        entries = listing.scan(root / bucket)
        choices |= listing.write_pages(temp / "pages", bucket, entries, wanted)
    for _ in range(PORTS_TRIED):
        versions = TLS_VERSIONS if authority else ()
        with ExitStack() as sockets:
            opened = [sockets.enter_context(listen()) for _ in ("", *versions)]
            port, *secure_ports = [int(each.getsockname()[1]) for each in opened]
            found = Nginx(port, temp, dict(zip(versions, secure_ports, strict=True)))
            config = write_config(root, found, choices, list(prefixes), log_requests, authority)
            numbers = [each.fileno() for each in opened]
            # What it takes over from its predecessor when its program is replaced.
            inherited = "".join(f"{number};" for number in numbers)
            server = Server([program, "-p", temp, "-e", temp / "start.log", "-c", config],
                            temp / "output.log", {**os.environ, "NGINX": inherited}, numbers)
        try:
            if server.wait_ready(lambda: answers(found.port), READY_SECONDS):
                yield found
                return
        finally:
            server.stop()
    raise LabError(f"nginx does not start: {server.last_words()}")
