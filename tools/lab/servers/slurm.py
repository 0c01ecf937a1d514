"""A Slurm cluster of two nodes on this machine, with nothing outside of one folder.

Its programs listen on all addresses: see `alone`. Each node is a slurmd of its own name and port.
No accounting and no cgroups: processes are found by their parents. It takes root, as slurmd does.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lab.install import SYSTEM_PATH, slurm, system_program
from lab.process import LabError, Server, free_port, run

NODES = ("node1", "node2")
READY_SECONDS = 30.0
ASK_SECONDS = 10.0


def configuration(folder: Path, host: str) -> str:
    """slurm.conf."""
    lines = [
        "ClusterName=lab", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={free_port()}",
        "SlurmUser=root", "SlurmdUser=root", "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge.socket", "CredType=cred/munge",
        f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid", f"SlurmdPidFile={folder}/%n.pid",
        "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none",
        "JobAcctGatherType=jobacct_gather/none", "SelectType=select/cons_tres",
        "SwitchType=switch/none", "ReturnToService=2"]
    lines += [f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=1"
              for node in NODES]
    lines.append(f"PartitionName=all Nodes={','.join(NODES)} Default=YES State=UP")
    return "\n".join([*lines, ""])


def start(stack: ExitStack, folder: Path, name: str, words: list[str | Path],
          env: dict[str, str]) -> Server:
    """One of the cluster's programs, until the stack is left."""
    server = Server([system_program(words[0]), *words[1:]], folder / f"{name}.log", env)
    stack.callback(server.stop)
    return server


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """A running cluster; the variables with which its programs find it."""
    if os.geteuid() != 0:
        raise LabError("only root can start a Slurm cluster here")
    slurm()
    for name in ("state", *NODES):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    configured = folder / "slurm.conf"
    configured.write_text(configuration(folder, socket.gethostname().split(".")[0]))
    variables = {"SLURM_CONF": str(configured)}
    env = {**os.environ, **variables, "PATH": SYSTEM_PATH}
    with ExitStack() as stack:
        munge = folder / "munge.socket"
        servers = [start(stack, folder, "munged", [
            "munged", "--foreground", "--force", f"--socket={munge}", f"--key-file={key}",
            f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log",
            f"--seed-file={folder}/munge.seed"], env)]
        servers[0].wait_ready(munge.exists, READY_SECONDS)
        servers.append(start(stack, folder, "slurmctld", ["slurmctld", "-D", "-i"], env))
        servers += [start(stack, folder, node, ["slurmd", "-D", "-N", node], env)
                    for node in NODES]

        def idle() -> bool:
            asked = run(["sinfo", "--noheader", "--format=%t %D"], seconds=ASK_SECONDS, env=env)
            return asked.stdout.split() == ["idle", str(len(NODES))]

        if not servers[1].wait_ready(idle, READY_SECONDS):
            words = "; ".join(f"{server.argv[0]}: {server.last_words()}" for server in servers)
            raise LabError(f"the Slurm cluster does not start: {words}")
        yield variables
