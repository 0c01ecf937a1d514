"""Interop: does inrush bring every byte from servers that this project did not write?

    tools/check.py interop [--inrush PATH] [--servers nginx,tls,moto] [--temp FOLDER]

The matrix is {nginx, moto} x {the temp folder's filesystem, XFS, ext4} x {default, little memory,
8 MiB parts, one worker, virtual-host style, discard}. Each case downloads a bucket of awkward sizes
and names and is compared byte by byte. Then each server's objects come as a stream: three epochs
through named pipes, in key order and shuffled, and once through standard output, to a reader that
takes their SHA-256.

`tls` is nginx over TLS 1.2 and over TLS 1.3, and (`self`) with a certificate that signed itself as
`openssl req -x509` makes them, with the temp folder's filesystem alone. nginx's log
must say that every request came over the version that was wanted and that sessions were resumed; an
authority of the right name with another key must be refused, with nothing asked and nothing
written.

One line for each case, and a closing line; exit 1 when a case failed, 2 when the lab itself could
not work. It installs what is missing (as root), listens on loopback only, takes less than three
minutes, and removes all it made.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from lab import client, compare, dataset, install, process, streams
from lab.process import LabError, say
from lab.servers import authority, listing, moto, nginx, volumes
from lab.tally import Counts

BUCKET = "lab"
CASE_SECONDS = 60.0
TOTAL_SECONDS = 600.0
STREAM_EPOCHS = 3
SERVERS = ("nginx", "tls", "moto")
EXIT_ENDPOINT = 6
LOG_SECONDS = 2.0


@dataclass(frozen=True)
class Variant:
    """One way to call the client."""

    name: str
    options: tuple[str, ...] = ()
    virtual: bool = False
    discard: bool = False


VARIANTS = (
    Variant("default"),
    Variant("--memory 64MiB", ("--memory", "64MiB")),
    Variant("--part-size 8MiB", ("--part-size", "8MiB")),
    Variant("--workers 1", ("--workers", "1")),
    Variant("virtual style", ("--addressing-style", "virtual"), virtual=True),
    Variant("--discard", discard=True),
)


@dataclass(frozen=True)
class Secured:
    """The TLS under an origin."""

    server: nginx.Nginx
    version: str
    stranger: Path
    """An authority of the same name that signed nothing here."""


@dataclass(frozen=True)
class Origin:
    """A running server, as the cases need it."""

    name: str
    url: str
    virtual_url: str
    options: tuple[str, ...]
    env: dict[str, str]
    entries: list[listing.Entry]
    prefix_of_variants: str
    """What the cases beside the default ask for: less, from a slow server."""
    tls: Secured | None = None

    def virtual_host(self) -> str:
        """The bucket's host name in virtual-host style."""
        return f"{BUCKET}.{self.virtual_url.split('://')[1].rsplit(':', 1)[0]}"


@dataclass
class Tally(Counts):
    """What became of the cases, and how much time is left for more."""

    skipped: int = 0
    deadline: float = field(default_factory=lambda: time.monotonic() + TOTAL_SECONDS)

    def seconds_left(self) -> float:
        """How long the next case may take."""
        return min(CASE_SECONDS, self.deadline - time.monotonic())

    def skip(self, case: str, reason: str) -> None:
        """Counts and prints a case that cannot be run here."""
        self.skipped += 1
        say(f"skip  {case}  {reason}")


def resolves(name: str) -> bool:
    """True when `name` leads to loopback."""
    try:
        return socket.gethostbyname(name) == "127.0.0.1"
    except OSError:
        return False


def judge(outcome: process.Outcome, wanted: Sequence[listing.Entry],
          destination: Path | None, prefix: str) -> str | None:
    """What is wrong with a run, if anything."""
    if outcome.timed_out:
        return f"not done after {outcome.seconds:.0f} s"
    if outcome.code != 0:
        return f"exit {outcome.code}: {outcome.last_words()}"
    try:
        summary = client.summary(outcome)
    except LabError as error:
        return str(error)
    counted = (summary["objects"], summary["bytes"])
    if counted != (len(wanted), sum(entry.size for entry in wanted)):
        return f"the summary counts {counted[0]} objects and {counted[1]} bytes"
    complaints = compare.trees(destination, wanted, prefix) if destination else []
    return compare.summary(complaints) if complaints else None


def run_case(program: Path, origin: Origin, volume: volumes.Volume, variant: Variant,
             tally: Tally) -> None:
    """One download, compared and deleted."""
    case = f"{origin.name:5}  {volume.name:12}  {variant.name:16}"
    if variant.virtual and not resolves(origin.virtual_host()):
        tally.skip(case, f"{origin.virtual_host()} does not resolve here")
        return
    if tally.seconds_left() <= 0:
        tally.report(case, "no time left", "")
        return
    prefix = "" if variant.name == "default" else origin.prefix_of_variants
    wanted = [entry for entry in origin.entries if entry.key.startswith(prefix)]
    destination = None if variant.discard else volume.path / "destination"
    try:
        outcome = client.get(
            program, [f"s3://{BUCKET}/{prefix}"], destination,
            endpoint=origin.virtual_url if variant.virtual else origin.url,
            options=[*origin.options, *variant.options], env=origin.env,
            seconds=tally.seconds_left())
        tally.report(case, judge(outcome, wanted, destination, prefix),
                     f"{len(wanted)} objects in {outcome.seconds:.2f} s")
    finally:
        if destination:
            shutil.rmtree(destination, ignore_errors=True)


def digest(entries: Sequence[listing.Entry]) -> str:
    """The line that the reader must print for these objects, one after the other."""
    sha256 = hashlib.sha256()
    for entry in entries:
        sha256.update(entry.path.read_bytes())
    return f"{sum(entry.size for entry in entries)} {sha256.hexdigest()}"


def run_stream(program: Path, origin: Origin, folder: Path, seed: int | None,
               tally: Tally) -> None:
    """Three epochs through named pipes, each held against the objects in its order."""
    name = "three epochs" if seed is None else "shuffled"
    case = f"{origin.name:5}  {'named pipes':12}  {name:16}"
    prefix = origin.prefix_of_variants
    wanted = [entry for entry in origin.entries if entry.key.startswith(prefix)]
    orders = [wanted if seed is None else streams.shuffled(wanted, seed, epoch)
              for epoch in range(STREAM_EPOCHS)]
    expected = [digest(order) for order in orders]
    if tally.seconds_left() <= 0:
        tally.report(case, "no time left", "")
        return
    folder.mkdir()
    pipes = [folder / f"channel_{epoch}" for epoch in range(STREAM_EPOCHS)]
    outcome, printed = streams.epochs(
        [program, "pipe", f"s3://{BUCKET}/{prefix}", folder / "channel", "--epochs",
         str(STREAM_EPOCHS), *([] if seed is None else ["--shuffle-seed", str(seed)]),
         "--endpoint-url", origin.url, "--region", "us-east-1", "--quiet", *origin.options],
        pipes, env=origin.env, seconds=tally.seconds_left())
    complaint = None
    if outcome.code != 0:
        complaint = f"exit {outcome.code}: {outcome.last_words()}"
    elif printed != expected:
        complaint = f"the reader got {printed}, not {expected}"
    elif list(folder.iterdir()):
        complaint = "a named pipe is left"
    tally.report(case, complaint, f"{len(wanted)} objects in {outcome.seconds:.2f} s")


def run_stdout(program: Path, origin: Origin, tally: Tally) -> None:
    """All objects on standard output, one after the other."""
    case = f"{origin.name:5}  {'stdout':12}  {'cat':16}"
    if tally.seconds_left() <= 0:
        tally.report(case, "no time left", "")
        return
    prefix = origin.prefix_of_variants
    wanted = [entry for entry in origin.entries if entry.key.startswith(prefix)]
    outcome, printed = streams.stdout_digest(
        [program, "cat", f"s3://{BUCKET}/{prefix}", "--endpoint-url", origin.url, "--region",
         "us-east-1", *origin.options], env=origin.env, seconds=tally.seconds_left())
    complaint = None
    if outcome.timed_out or outcome.code != 0:
        complaint = f"exit {outcome.code}: {outcome.last_words()}"
    elif printed != digest(wanted):
        complaint = f"the reader got {printed}, not {digest(wanted)}"
    tally.report(case, complaint, f"{len(wanted)} objects in {outcome.seconds:.2f} s")


def protocol_complaint(tls: Secured, agreements: Sequence[nginx.Agreement]) -> str | None:
    """What nginx's log says against the sessions of one run, if anything."""
    others = {found.protocol for found in agreements} - {tls.version}
    if not agreements:
        return "nothing came over TLS"
    if others:
        return f"spoken was {', '.join(sorted(others))}"
    if {found.suite for found in agreements} != {nginx.SUITES[tls.version]}:
        return f"the suites are not {nginx.SUITES[tls.version]} alone"
    resumed = any(found.reused == "r" for found in agreements)
    return None if resumed else f"none of {len(agreements)} requests was in a resumed session"


def run_logged(origin: Origin, tls: Secured, name: str, run: Callable[[], None],
               tally: Tally) -> None:
    """Runs a case and holds nginx's log of it against what was wanted."""
    before = len(tls.server.agreements(tls.version))
    run()
    deadline = time.monotonic() + LOG_SECONDS
    while not (found := tls.server.agreements(tls.version, before)) and (
            time.monotonic() < deadline):
        time.sleep(0.05)
    connections = {agreement.connection: agreement.reused for agreement in found}
    resumed = sum(reused == "r" for reused in connections.values())
    tally.report(f"{origin.name:5}  {'log':12}  {name:16}", protocol_complaint(tls, found),
                 f"{tls.version}, {resumed} of {len(connections)} connections resumed")


def run_refusals(program: Path, origin: Origin, tls: Secured, volume: volumes.Volume,
                 tally: Tally) -> None:
    """An authority that did not sign the server's certificate: nothing asked, nothing written."""
    destination = volume.path / "destination"
    commands: dict[str, list[str | Path]] = {
        "get": [destination, "--quiet"], "pipe": [destination, "--quiet"], "cat": []}
    for name, rest in commands.items():
        before = len(tls.server.agreements(tls.version))
        outcome = process.run(
            [program, name, f"s3://{BUCKET}/{origin.prefix_of_variants}", *rest, "--endpoint-url",
             origin.url, "--region", "us-east-1", "--no-sign-request", "--ca-bundle",
             tls.stranger], env=origin.env, seconds=tally.seconds_left())
        complaint = None
        if outcome.timed_out or outcome.code != EXIT_ENDPOINT:
            complaint = f"exit {outcome.code}: {outcome.last_words()}"
        elif "TLS with 127.0.0.1" not in outcome.stderr:
            complaint = f"it does not say why: {outcome.last_words()}"
        elif outcome.stdout or list(volume.path.iterdir()):
            complaint = "something was written"
        elif tls.server.agreements(tls.version, before):
            complaint = "something was asked for"
        tally.report(f"{origin.name:5}  {'wrong key':12}  {name:16}", complaint, "refused")


def run_secured(program: Path, origin: Origin, tls: Secured, volume: volumes.Volume,
                tally: Tally) -> None:
    """The cases of an origin that speaks TLS."""
    # What signed itself is for loopback alone.
    alone = origin.name == "self"
    for variant in (variant for variant in VARIANTS if not (variant.virtual and alone)):
        run_logged(origin, tls, variant.name,
                   lambda variant=variant: run_case(program, origin, volume, variant, tally), tally)
    pipes = volume.path / "pipes"
    run_logged(origin, tls, "three epochs",
               lambda: run_stream(program, origin, pipes, None, tally), tally)
    shutil.rmtree(pipes, ignore_errors=True)
    run_logged(origin, tls, "cat", lambda: run_stdout(program, origin, tally), tally)
    run_refusals(program, origin, tls, volume, tally)


def nginx_origin(stack: ExitStack, temp: Path, root: Path) -> list[Origin]:
    """nginx over the tree, asked without signatures."""
    server = stack.enter_context(nginx.serve(root, temp / "nginx", {BUCKET: ["data/"]}))
    return [Origin("nginx", server.url, server.virtual_url, ("--no-sign-request",),
                   client.clean_environment(temp), listing.scan(root / BUCKET), "")]


def tls_origins(stack: ExitStack, temp: Path, root: Path) -> list[Origin]:
    """nginx over TLS, once for each version, and once with a certificate that signed itself."""
    hosts = [f"{BUCKET}.{nginx.VIRTUAL_DOMAIN}"]
    ours = authority.make(temp / "authority", hosts)
    stranger = authority.make(temp / "stranger", hosts).bundle
    server = stack.enter_context(
        nginx.serve(root, temp / "nginx-tls", {BUCKET: ["data/"]}, authority=ours))
    found = [tls_origin(version.replace("v", "").replace(".", "").lower(), temp, root, ours.bundle,
                        Secured(server, version, stranger)) for version in nginx.TLS_VERSIONS]
    alone = authority.make_self_signed(temp / "self-signed")
    stranger = authority.make_self_signed(temp / "self-signed-stranger").bundle
    server = stack.enter_context(
        nginx.serve(root, temp / "nginx-self-signed", {BUCKET: ["data/"]}, authority=alone))
    secured = Secured(server, nginx.TLS_VERSIONS[-1], stranger)
    return [*found, tls_origin("self", temp, root, alone.bundle, secured)]


def tls_origin(name: str, temp: Path, root: Path, bundle: Path, secured: Secured) -> Origin:
    """A server over one version of TLS, believed by this bundle."""
    server, version = secured.server, secured.version
    return Origin(name, server.tls_url(version), server.tls_virtual_url(version),
                  ("--no-sign-request", "--ca-bundle", str(bundle)),
                  client.clean_environment(temp), listing.scan(root / BUCKET), "", secured)


def moto_origin(stack: ExitStack, temp: Path, root: Path) -> list[Origin]:
    """moto filled from the tree, asked with signatures."""
    server = stack.enter_context(moto.serve(temp / "moto"))
    entries = listing.scan(root / BUCKET)
    server.put_all(BUCKET, entries)
    for entry in moto.not_held(server, BUCKET, entries, "data/names/"):
        say(f"note  moto does not hold {entry.key!r} as it was put; not asked for")
        server.delete(BUCKET, entry.key)
        entries.remove(entry)
    return [Origin("moto", server.url, server.virtual_url, (),
                   client.clean_environment(temp, moto.CREDENTIALS), entries, "data/")]


def origins(stack: ExitStack, temp: Path, names: Sequence[str]) -> Iterator[Origin]:
    """The servers, one after the other, over one data set."""
    root = temp / "root"
    dataset.write_matrix(root / BUCKET)
    makers = {"nginx": nginx_origin, "tls": tls_origins, "moto": moto_origin}
    for name in names:
        with ExitStack() as running:
            yield from makers[name](running, temp, root)


def matrix(program: Path, names: Sequence[str], parent: Path | None) -> Tally:
    """All cases; everything that was made is gone when it returns."""
    tally = Tally()
    with ExitStack() as stack:
        no_mounts = volumes.private_mounts()
        temp = Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="inrush-interop-", dir=parent)))
        if no_mounts is None:
            hosts = [f"{BUCKET}.{domain}" for domain in (nginx.VIRTUAL_DOMAIN, moto.VIRTUAL_DOMAIN)]
            volumes.add_hosts(stack, temp, hosts)
        places = volumes.volumes(stack, temp, no_mounts)
        own = places[0]
        assert isinstance(own, volumes.Volume)
        for origin in origins(stack, temp, names):
            if origin.tls:
                run_secured(program, origin, origin.tls, own, tally)
                continue
            for place in places:
                if isinstance(place, volumes.Skipped):
                    tally.skip(f"{origin.name:5}  {place.name:12}", place.reason)
                    continue
                for variant in VARIANTS:
                    run_case(program, origin, place, variant, tally)
            for seed in (None, 7):
                run_stream(program, origin, temp / f"pipes-{origin.name}-{seed}", seed, tally)
            run_stdout(program, origin, tally)
    return tally


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = client.argument_parser(__doc__, with_origin=False)
    parser.add_argument("--servers", default=",".join(SERVERS),
                        help="which servers, with commas between (default: %(default)s)")
    parser.add_argument("--temp", type=Path, help="where to work (default: the temp folder)")
    return parser.parse_args()


def main() -> int:
    """Runs the matrix; the exit code."""
    args = arguments()
    process.unwind_on_signals()
    names = [name for name in args.servers.split(",") if name]
    if not names or set(names) - set(SERVERS):
        say(f"servers are {', '.join(SERVERS)}")
        return 2
    if not client.are_built(args.inrush):
        return 2
    try:
        install.system_program("nginx")
        if "moto" in names:
            install.moto_server()
        tally = matrix(args.inrush.resolve(), names, args.temp)
    except LabError as error:
        say(f"the lab cannot work: {error}")
        return 2
    say(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
