"""Every byte from servers that this project did not write: nginx, nginx over TLS, moto.

`--only` names servers: these, and radosgw, swift, seaweedfs, rclone and juicefs, which take
up to two minutes each and are left out without it. The matrix is {nginx, moto, ...} x {the temp
folder's filesystem, XFS, ext4} x {default, little memory, 8 MiB parts, one worker, virtual-host
style, discard}. Each case downloads a bucket of awkward sizes and names and is compared byte by
byte. Then each server's objects come as a stream: three epochs through named pipes, as they are
listed and shuffled, and once through standard output, to a reader that takes their SHA-256. Servers
that keep objects, which all are but nginx, have more cases: see `stores`.

`tls` is nginx over TLS 1.2 and over TLS 1.3, and (`self`) with a certificate that signed itself as
`openssl req -x509` makes them, with the temp folder's filesystem alone. nginx's log
must say that every request came over the version that was wanted and that sessions were resumed; an
authority of the right name with another key must be refused, with nothing asked and nothing
written.

It installs what is missing (as root), listens on loopback only, and takes less than four minutes
without `--only`.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lab import client, compare, dataset, install, process, streams
from lab.checks import stores
from lab.driver import Lab
from lab.process import LabError, Wrong, say
from lab.servers import authority, listing, nginx, radosgw, single, swift, volumes
from lab.servers.store import Store

BUCKET = "lab"
CASE_SECONDS = 180.0
SERVER_SECONDS = 600.0
STREAM_EPOCHS = 3
STORES: dict[str, Callable[[Path], AbstractContextManager[Store]]] = {
    "radosgw": radosgw.serve, "swift": swift.serve,
    **{name: partial(single.serve, name=name) for name in single.CALLS}}
ALWAYS = ("nginx", "tls", "moto")
SERVERS = ("nginx", "tls", *STORES)
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
    store: Store | None = None

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


def chosen(lab: Lab) -> list[str]:
    """The servers of this run."""
    return lab.chosen("only", SERVERS, ALWAYS)


def seconds_left(lab: Lab) -> float:
    """How long the next case may take."""
    total = SERVER_SECONDS * len(chosen(lab))
    left = min(CASE_SECONDS, lab.begun + total - time.monotonic())
    if left <= 0:
        raise Wrong(f"not done after {total:.0f} s")
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
    case = f"{origin.name:9}  {volume.name:12}  {variant.name:16}"
    if variant.virtual and origin.store and not origin.store.has_virtual_style:
        say(f"note  {case}  it has none")
        return
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
    lab.report(f"{origin.name:9}  {'named pipes':12}  {name:16}", complaint,
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
    lab.report(f"{origin.name:9}  {'stdout':12}  {'cat':16}",
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
    lab.report(f"{origin.name:9}  {'log':12}  {name:16}", protocol_complaint(tls, found),
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
        lab.report(f"{origin.name:9}  {'wrong key':12}  {name:16}", complaint, "refused")


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


def store_origin(stack: ExitStack, temp: Path, root: Path, name: str) -> list[Origin]:
    """A server that keeps objects, filled from the tree and asked with signatures."""
    server = stack.enter_context(STORES[name](temp / name))
    entries = listing.scan(root / BUCKET)
    misread = [entry for entry in entries if set(server.misread) & set(entry.key)]
    for entry in misread:
        say(f"note  {name} does not hold {entry.key!r} as it is put; left out")
    held = server.put_all(BUCKET, [entry for entry in entries if entry not in misread],
                          "data/names/")
    if held != sorted(held, key=lambda entry: entry.key.encode()):
        say(f"note  {name} does not list keys in the order of their bytes")
    return [Origin(name, server.url, server.virtual_url, (),
                   client.clean_environment(temp, server.keys.environment()), held, "data/",
                   store=server)]


def origins(temp: Path, names: Sequence[str]) -> Iterator[Origin]:
    """The servers, one after the other, over one data set."""
    root = temp / "root"
    dataset.write_matrix(root / BUCKET)
    makers = {"nginx": nginx_origin, "tls": tls_origins}
    for name in names:
        with ExitStack() as running:
            yield from (makers[name](running, temp, root) if name in makers
                        else store_origin(running, temp, root, name))


def install_all(servers: Sequence[str]) -> None:
    """What is missing of these servers."""
    for name in servers:
        if name in ("nginx", "tls"):
            install.system_program("nginx")
        elif name == "radosgw":
            install.ceph()
        else:
            install.program(name)


def run(lab: Lab) -> None:
    """All cases."""
    servers = chosen(lab)
    install_all(servers)
    if not lab.args.only:
        others = [name for name in SERVERS if name not in ALWAYS]
        say(f"note  only by name (--only): {', '.join(others)}")
    no_mounts = volumes.private_mounts()
    if no_mounts is None:
        volumes.add_hosts(lab.stack, lab.temp, [f"{BUCKET}.{nginx.Nginx.VIRTUAL_DOMAIN}"])
    places = volumes.volumes(lab.stack, lab.temp, no_mounts)
    own = places[0]
    assert isinstance(own, volumes.Volume)
    for origin in origins(lab.temp, servers):
        if origin.tls:
            run_secured(lab, origin, origin.tls, own)
            continue
        for place in places:
            if isinstance(place, volumes.Skipped):
                lab.skip(f"{origin.name:9}  {place.name:12}", place.reason)
                continue
            for variant in VARIANTS:
                run_case(lab, origin, place, variant)
        for seed in (None, 7):
            run_stream(lab, origin, lab.temp / f"pipes-{origin.name}-{seed}", seed)
        run_stdout(lab, origin)
        if origin.store:
            stores.run(stores.Cases(lab, origin.store, BUCKET, origin.entries,
                                    lab.folder(f"store-{origin.name}"), no_mounts is None))
