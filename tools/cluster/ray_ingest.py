#!/usr/bin/env python3
"""Workers of Ray that take their shares of a data set: ray_ingest.py SOURCE FOLDER WORKERS

Each worker downloads its share to a folder of its own and reads it there. Ray has no variables that
say how many workers there are and which one this is: the program does, and hands both to inrush.
With `--local TEMP` Ray is started for this program alone, on this machine; otherwise it joins the
cluster of RAY_ADDRESS.

Prints one line of JSON for each worker: its rank, and the SHA-256 of each of its files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
from pathlib import Path

import ray


@ray.remote(num_cpus=1)
class Worker:
    """One worker, which stays on its node with its files."""

    def __init__(self, rank: int, count: int, folder: str) -> None:
        self.rank, self.count = rank, count
        self.base = Path(folder) / f"worker-{rank}"

    def ingest(self, source: str) -> None:
        """Downloads the share. A failure is an exception of the caller."""
        host = {"INRUSH_HOST_RANK": str(self.rank), "INRUSH_HOST_COUNT": str(self.count)}
        subprocess.run(
            ["inrush", "train", "--quiet", "--base-dir", self.base, "--channel",
             f"train={source},distribution=ShardedByS3Key"],
            env={**os.environ, **host}, check=True)

    def read(self) -> dict[str, str]:
        """Stands for training: the files, with their SHA-256."""
        folder = self.base / "input/data/train"
        return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted(folder.rglob("*")) if path.is_file()}


def main() -> None:
    """All workers at once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("folder")
    parser.add_argument("workers", type=int)
    parser.add_argument("--local", metavar="TEMP")
    args = parser.parse_args()
    if args.local:
        # As many processors as workers, however many there are; nothing listens outside loopback.
        ray.init(num_cpus=args.workers, include_dashboard=False, object_store_memory=80 << 20,
                 _temp_dir=args.local, _node_ip_address="127.0.0.1", log_to_driver=False)
    else:
        ray.init(log_to_driver=False)
    workers = [Worker.remote(rank, args.workers, args.folder) for rank in range(args.workers)]
    ray.get([worker.ingest.remote(args.source) for worker in workers])
    for rank, files in enumerate(ray.get([worker.read.remote() for worker in workers])):
        print(json.dumps({"rank": rank, "files": files}), flush=True)


if __name__ == "__main__":
    main()
