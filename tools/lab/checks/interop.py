"""Every byte from servers that this project did not write: nginx, nginx over TLS, moto.

`--only` names servers: nginx, tls, moto. The matrix is {nginx, moto} x {the temp folder's
filesystem, XFS, ext4} x {default, little memory, 8 MiB parts, one worker, virtual-host style,
discard}. Each case downloads a bucket of awkward sizes and names and is compared byte by byte. Then
each server's objects come as a stream: three epochs through named pipes, in key order and shuffled,
and once through standard output, to a reader that takes their SHA-256.

`tls` is nginx over TLS 1.2 and over TLS 1.3, and (`self`) with a certificate that signed itself as
`openssl req -x509` makes them, with the temp folder's filesystem alone. nginx's log
must say that every request came over the version that was wanted and that sessions were resumed; an
authority of the right name with another key must be refused, with nothing asked and nothing
written.

It installs what is missing (as root), listens on loopback only, and takes less than three minutes.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from lab import client, compare, dataset, install, process, streams
from lab.driver import Lab
from lab.process import LabError, Wrong, say
from lab.servers import authority, listing, moto, nginx, volumes

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

    @property
    def source(self) -> str:
        """The address of what those cases ask for."""
        return f"s3://{BUCKET}/{self.prefix_of_variants}"

    def below(self, prefix: str) -> list[listing.Entry]:
        """The objects of a prefix."""
        return [entry for entry in self.entries if entry.key.startswith(prefix)]

    def virtual_host(self) -> str:
        """The bucket's host name in virtual-host style."""
        return f"{BUCKET}.{self.virtual_url.split('://')[1].rsplit(':', 1)[0]}"


def seconds_left(lab: Lab) -> float:
    """How long the next case may take."""
    left = min(CASE_SECONDS, lab.begun + TOTAL_SECONDS - time.monotonic())
    if left <= 0:
        raise Wrong(f"not done after {TOTAL_SECONDS:.0f} s")
    return left


def resolves(name: str) -> bool:
    """True when `name` leads to loopback."""
    try:
        return socket.gethostbyname(name) == "127.0.0.1"
    except OSError:
        return False


def judge(outcome: process.Outcome, wanted: Sequence[listing.Entry],
          destination: Path | None, prefix: str) -> str | None:
    """What is wrong with a run, if anything."""
    if outcome.trouble:
        return outcome.trouble
    try:
        summary = client.summary(outcome)
    except LabError as error:
        return str(error)
    counted = (summary["objects"], summary["bytes"])
    if counted != (len(wanted), sum(entry.size for entry in wanted)):
        return f"the summary counts {counted[0]} objects and {counted[1]} bytes"
    complaints = compare.trees(destination, wanted, prefix) if destination else []
    return compare.summary(complaints) if complaints else None


def run_case(lab: Lab, origin: Origin, volume: volumes.Volume, variant: Variant) -> None:
    """One download, compared and deleted."""
    case = f"{origin.name:5}  {volume.name:12}  {variant.name:16}"
    if variant.virtual and not resolves(origin.virtual_host()):
        lab.skip(case, f"{origin.virtual_host()} does not resolve here")
        return
    prefix = "" if variant.name == "default" else origin.prefix_of_variants
    wanted = origin.below(prefix)
    destination = None if variant.discard else volume.path / "destination"
    try:
        outcome = client.fetch(
            lab.inrush, "get", f"s3://{BUCKET}/{prefix}", destination,
            url=origin.virtual_url if variant.virtual else origin.url,
            options=[*origin.options, *variant.options], env=origin.env, seconds=seconds_left(lab))
        lab.report(case, judge(outcome, wanted, destination, prefix),
                   f"{len(wanted)} objects in {outcome.seconds:.2f} s")
    finally:
        if destination:
            shutil.rmtree(destination, ignore_errors=True)


def run_stream(lab: Lab, origin: Origin, folder: Path, seed: int | None) -> None:
    """Three epochs through named pipes, each compared with the objects in its order."""
    wanted = origin.below(origin.prefix_of_variants)
    orders = [wanted if seed is None else streams.shuffled(wanted, seed, epoch)
              for epoch in range(STREAM_EPOCHS)]
    folder.mkdir()
    seeded = [] if seed is None else ["--shuffle-seed", str(seed)]
    outcome, parts = streams.by_pipes(
        lab.command("pipe", origin.source, folder / "channel", "--epochs", str(STREAM_EPOCHS),
                    *seeded, "--quiet", *origin.options, url=origin.url),
        folder / "channel", STREAM_EPOCHS, "--sha256", env=origin.env, seconds=seconds_left(lab))
    complaint = outcome.trouble or wrong_parts(parts, orders)
    if not complaint and list(folder.iterdir()):
        complaint = "a named pipe is left"
    name = "three epochs" if seed is None else "shuffled"
    lab.report(f"{origin.name:5}  {'named pipes':12}  {name:16}", complaint,
               f"{len(wanted)} objects in {outcome.seconds:.2f} s")


def wrong_parts(parts: Sequence[streams.Part], orders: Sequence[Sequence[listing.Entry]]
                ) -> str | None:
    """What is wrong with what a reader got, if anything."""
    found = [(part["bytes"], part["sha256"]) for part in parts]
    expected = [listing.digest(order) for order in orders]
    return None if found == expected else f"the reader got {found}, not {expected}"


def run_stdout(lab: Lab, origin: Origin) -> None:
    """All objects on standard output, one after the other."""
    wanted = origin.below(origin.prefix_of_variants)
    outcome, parts = streams.by_stdout(
        lab.command("cat", origin.source, *origin.options, url=origin.url), "--sha256",
        env=origin.env, seconds=seconds_left(lab))
    lab.report(f"{origin.name:5}  {'stdout':12}  {'cat':16}",
               outcome.trouble or wrong_parts(parts, [wanted]),
               f"{len(wanted)} objects in {outcome.seconds:.2f} s")


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


def run_logged(lab: Lab, origin: Origin, tls: Secured, name: str, run: Callable[[], None]) -> None:
    """Runs a case and holds nginx's log of it against what was wanted."""
    before = len(tls.server.agreements(tls.version))
    run()
    deadline = time.monotonic() + LOG_SECONDS
    while not (found := tls.server.agreements(tls.version, before)) and (
            time.monotonic() < deadline):
        time.sleep(0.05)
    connections = {agreement.connection: agreement.reused for agreement in found}
    resumed = sum(reused == "r" for reused in connections.values())
    lab.report(f"{origin.name:5}  {'log':12}  {name:16}", protocol_complaint(tls, found),
                 f"{tls.version}, {resumed} of {len(connections)} connections resumed")


def run_refusals(lab: Lab, origin: Origin, tls: Secured, volume: volumes.Volume) -> None:
    """An authority that did not sign the server's certificate: nothing asked, nothing written."""
    destination = volume.path / "destination"
    commands: dict[str, list[str | Path]] = {
        "get": [destination, "--quiet"], "pipe": [destination, "--quiet"], "cat": []}
    for name, rest in commands.items():
        before = len(tls.server.agreements(tls.version))
        outcome = process.run(
            lab.command(name, origin.source, *rest, "--no-sign-request", "--ca-bundle",
                        tls.stranger, url=origin.url), env=origin.env, seconds=seconds_left(lab))
        complaint = None
        if outcome.timed_out or outcome.code != EXIT_ENDPOINT:
            complaint = f"exit {outcome.code}: {outcome.last_words()}"
        elif "TLS with 127.0.0.1" not in outcome.stderr:
            complaint = f"it does not say why: {outcome.last_words()}"
        elif outcome.stdout or list(volume.path.iterdir()):
            complaint = "something was written"
        elif tls.server.agreements(tls.version, before):
            complaint = "something was asked for"
        lab.report(f"{origin.name:5}  {'wrong key':12}  {name:16}", complaint, "refused")


def run_secured(lab: Lab, origin: Origin, tls: Secured, volume: volumes.Volume) -> None:
    """The cases of an origin that speaks TLS."""
    # What signed itself is for loopback alone.
    alone = origin.name == "self"
    for variant in (variant for variant in VARIANTS if not (variant.virtual and alone)):
        run_logged(lab, origin, tls, variant.name,
                   lambda variant=variant: run_case(lab, origin, volume, variant))
    pipes = volume.path / "pipes"
    run_logged(lab, origin, tls, "three epochs", lambda: run_stream(lab, origin, pipes, None))
    shutil.rmtree(pipes, ignore_errors=True)
    run_logged(lab, origin, tls, "cat", lambda: run_stdout(lab, origin))
    run_refusals(lab, origin, tls, volume)


def nginx_origin(stack: ExitStack, temp: Path, root: Path) -> list[Origin]:
    """nginx over the tree, asked without signatures."""
    server = stack.enter_context(nginx.serve(root, temp / "nginx", {BUCKET: ["data/"]}))
    return [Origin("nginx", server.url, server.virtual_url, ("--no-sign-request",),
                   client.clean_environment(temp), listing.scan(root / BUCKET), "")]


def tls_origins(stack: ExitStack, temp: Path, root: Path) -> list[Origin]:
    """nginx over TLS, once for each version, and once with a certificate that signed itself."""
    hosts = [f"{BUCKET}.{nginx.Nginx.VIRTUAL_DOMAIN}"]
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


def origins(temp: Path, names: Sequence[str]) -> Iterator[Origin]:
    """The servers, one after the other, over one data set."""
    root = temp / "root"
    dataset.write_matrix(root / BUCKET)
    makers = {"nginx": nginx_origin, "tls": tls_origins, "moto": moto_origin}
    for name in names:
        with ExitStack() as running:
            yield from makers[name](running, temp, root)


def run(lab: Lab) -> None:
    """All cases."""
    servers = lab.among(SERVERS)
    install.system_program("nginx")
    if "moto" in servers:
        install.program("moto")
    no_mounts = volumes.private_mounts()
    if no_mounts is None:
        hosts = [f"{BUCKET}.{server.VIRTUAL_DOMAIN}" for server in (nginx.Nginx, moto.Moto)]
        volumes.add_hosts(lab.stack, lab.temp, hosts)
    places = volumes.volumes(lab.stack, lab.temp, no_mounts)
    own = places[0]
    assert isinstance(own, volumes.Volume)
    for origin in origins(lab.temp, servers):
        if origin.tls:
            run_secured(lab, origin, origin.tls, own)
            continue
        for place in places:
            if isinstance(place, volumes.Skipped):
                lab.skip(f"{origin.name:5}  {place.name:12}", place.reason)
                continue
            for variant in VARIANTS:
                run_case(lab, origin, place, variant)
        for seed in (None, 7):
            run_stream(lab, origin, lab.temp / f"pipes-{origin.name}-{seed}", seed)
        run_stdout(lab, origin)
