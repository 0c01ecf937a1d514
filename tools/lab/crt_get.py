"""Downloads objects with Amazon's common runtime, as its documentation shows: one request for each
object, all of them at once, and the runtime decides how many parts it asks for at a time.

    crt_get.py ENDPOINT BUCKET LIST DESTINATION [--direct-io] [--ca-bundle FILE] [--target-gbps N]

LIST has a line for each object: its key, a tab, and the path of its file below DESTINATION. The
runtime makes no temporary files and no folders. Run with the Python of a venv that has awscrt.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import Future, wait
from pathlib import Path
from urllib.parse import urlsplit

from awscrt.http import HttpHeaders, HttpRequest
from awscrt.io import (ClientBootstrap, ClientTlsContext, DefaultHostResolver, EventLoopGroup,
                       TlsContextOptions)
from awscrt.s3 import S3Client, S3FileIoOptions, S3RequestTlsMode, S3RequestType


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("endpoint")
    parser.add_argument("bucket")
    parser.add_argument("list", type=Path)
    parser.add_argument("destination", type=Path)
    parser.add_argument("--direct-io", action="store_true")
    parser.add_argument("--ca-bundle", type=Path)
    parser.add_argument("--target-gbps", type=float, help="(default: the runtime's)")
    return parser.parse_args()


def client(args: argparse.Namespace, secure: bool) -> S3Client:
    """A client with the runtime's defaults; requests are not signed."""
    group = EventLoopGroup()
    tls = None
    if secure:
        options = TlsContextOptions()
        if args.ca_bundle:
            options.override_default_trust_store_from_path(None, str(args.ca_bundle))
        tls = ClientTlsContext(options).new_connection_options()
    return S3Client(
        bootstrap=ClientBootstrap(group, DefaultHostResolver(group)), region="us-east-1",
        tls_mode=S3RequestTlsMode.ENABLED if secure else S3RequestTlsMode.DISABLED,
        tls_connection_options=tls, throughput_target_gbps=args.target_gbps,
        fio_options=S3FileIoOptions(direct_io=True) if args.direct_io else None)


def main() -> int:
    """Downloads the list; the exit code."""
    args = arguments()
    endpoint = urlsplit(args.endpoint)
    pairs = [line.split("\t") for line in args.list.read_text().splitlines()]
    paths = [args.destination / path for _, path in pairs]
    for folder in {path.parent for path in paths}:
        folder.mkdir(parents=True, exist_ok=True)
    runtime = client(args, endpoint.scheme == "https")
    requests, ends = [], []
    for (key, _), path in zip(pairs, paths, strict=True):
        request = HttpRequest("GET", f"/{args.bucket}/{key}",
                              HttpHeaders([("host", endpoint.netloc)]))
        made = runtime.make_request(type=S3RequestType.GET_OBJECT, request=request,
                                    operation_name="GetObject", recv_filepath=str(path))
        # A request that is collected is cancelled.
        requests.append(made)
        end: Future[None] = made.finished_future
        ends.append(end)
    wait(ends)
    failures = [error for end in ends if (error := end.exception())]
    if failures:
        print(f"{len(failures)} of {len(ends)} failed: {failures[0]}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
