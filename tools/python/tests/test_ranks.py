"""Ranks of a process group that load one model: each byte is read once, and one that fails ends
all of them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from common import WAIT_SECONDS_MAX, until
from conftest import Origin, require

torch = require("torch")

from test_models import of_files  # noqa: E402

Serve = Callable[..., Origin]
RANKS = 4
URI = "s3://data/m/"
#: A process that becomes all ranks, since to import torch takes longer than all else. Each runs the
#: code, and its `result` is printed; None of one that died.
PROGRAM = """
import hashlib, json, os, sys
import torch, torch.distributed as dist
import inrush, inrush.safetensors, inrush._ranks, inrush._shares

URI, size = "s3://data/m/", int(sys.argv[2])
inrush._shares.CHUNK_BYTES = 1 << 20

def digest(tensor):
    return hashlib.sha256(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()).hexdigest()

def failure(run):
    try:
        run()
    except (Exception, KeyboardInterrupt) as error:
        return [type(error).__name__, str(error)]

def run(rank, out):
    dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank,
                            world_size=size)
    names = {**globals(), "rank": rank, "group": dist.group.WORLD, "result": None}
    exec(sys.argv[3], names)
    os.write(out, json.dumps(names["result"]).encode())
    if "inrush_lost" not in names:
        # Who has failed in order leaves a process group that works.
        dist.barrier()

pipes, children = [], []
for rank in range(size):
    pipes.append(os.pipe())
    children.append(os.fork())
    if not children[-1]:
        try:
            run(rank, pipes[-1][1])
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
for _, out in pipes:
    os.close(out)
result = [os.fdopen(pipe, "rb").read() for pipe, _ in pipes]
ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert set(ended) <= {0, 9}, ended
print(json.dumps([json.loads(one) if one else None for one in result]))
"""


def ranks(folder: Path, code: str) -> list[Any]:
    """What each rank leaves in `result`."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo",
           "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder / "rendezvous"), str(RANKS), code], env=env,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as running:
        try:
            said, problems = running.communicate(timeout=4 * WAIT_SECONDS_MAX)
        finally:
            if running.returncode is None:
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0, problems.decode()
    result: list[Any] = json.loads(said)
    return result


def model() -> dict[str, Any]:
    """Tensors of many lengths; together 40 MB."""
    torch.manual_seed(1)
    made = {f"large.{at}": torch.randint(0, 255, (1200, 900 + at * 300)) for at in range(3)}
    made["half"] = torch.randint(0, 255, (1500, 2000)).to(torch.bfloat16)
    made["wide"] = torch.randn(4, 400_001)
    return made | {f"small.{at}": torch.full((at, 3), float(at)) for at in range(50)} \
        | {"scalar": torch.tensor(2.5), "none": torch.zeros(0, 4)}


def digest(tensor: Any) -> str:
    """Of the bytes of a tensor."""
    return hashlib.sha256(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()).hexdigest()


def sent(samples: Path) -> int:
    """Bytes that the origin has sent, once it sends no more."""
    last = [-1, -1]

    def rests() -> bool:
        lines = samples.read_text().splitlines()[:-1] if samples.exists() else []
        if not lines:
            return False
        moment, count = map(int, lines[-1].split()[:2])
        if count != last[1]:
            last[:] = moment, count
        return moment > last[0] + 300
    until(rests)
    return last[1]


WHOLE = """
with inrush.safetensors.open(URI, process_group=group) as model:
    streamed = [(name, digest(tensor)) for name, tensor in model.tensors()]
    assert [name for name, _ in streamed] == model.offset_keys()
    result = dict(streamed)
"""


def test_each_byte_is_read_once(serve: Serve, tmp_path: Path) -> None:
    made, samples = model(), tmp_path / "samples"
    serve(of_files(made, 3), "--samples", str(samples))
    result = ranks(tmp_path, WHOLE)
    expected = {name: digest(one) for name, one in made.items()}
    assert result == [expected] * RANKS
    # Also headers, of 256 KiB, and what answers begin with.
    assert sent(samples) < sum(one.nbytes for one in made.values()) * 1.02 + (1 << 20)


PARTS = """
shard = {name: (dim, rank, size) for name, dim in json.loads(%r).items()}
result = {name: digest(tensor) for name, tensor in
          inrush.safetensors.load(URI, process_group=group, shard=shard).items()}
"""


def test_parts_of_tensors(serve: Serve, tmp_path: Path) -> None:
    made, samples = model(), tmp_path / "samples"
    serve(of_files(made, 3), "--samples", str(samples))
    dims = {"large.0": 0, "large.1": 1, "half": -1, "wide": 1, "small.7": 0, "small.9": 1}
    result = ranks(tmp_path, PARTS % json.dumps(dims))
    for rank, found in enumerate(result):
        assert found.keys() == made.keys()
        for name, one in made.items():
            parts = one.chunk(RANKS, dims[name]) if name in dims else [one] * RANKS
            part = parts[rank] if rank < len(parts) else one[:0]
            assert found[name] == digest(part), (rank, name)
    assert sent(samples) < sum(one.nbytes for one in made.values()) * 1.05 + (1 << 20)


#: One rank fails in the middle of its reads.
FAILS = """
original = inrush._shares.filled
def failing(*words):
    for at, _ in enumerate(original(*words)):
        if rank == 2 and at == 3:
            %s
        yield
inrush._shares.filled = failing
result = failure(lambda: inrush.safetensors.load(URI, process_group=group))
"""


@pytest.mark.parametrize("raised, kind", [
    ("raise inrush.NotFound('it is gone', uri=URI)", "NotFound"),
    ("raise ValueError('it is gone')", "ValueError"),
    ("raise KeyError('it is gone')", "KeyError"),
    ("raise KeyboardInterrupt('it is gone')", "RuntimeError")])
def test_one_that_fails_ends_all(serve: Serve, tmp_path: Path, raised: str, kind: str) -> None:
    serve(of_files(model(), 3))
    result = ranks(tmp_path, FAILS % raised)
    for rank, (name, text) in enumerate(result):
        assert "it is gone" in text
        if rank == 2:
            assert name in raised and "rank" not in text
        else:
            assert name == kind and "rank 2: " in text


def test_one_that_stops_ends_all(serve: Serve, tmp_path: Path) -> None:
    serve(of_files(model(), 3))
    result = ranks(tmp_path, """
def run():
    with inrush.safetensors.open(URI, process_group=group) as model:
        for at, _ in enumerate(model.tensors()):
            if rank == 1 and at == 4:
                break
result = failure(run)
""")
    assert result == [None if rank == 1 else ["RuntimeError", "rank 1 stopped before the end"]
                      for rank in range(RANKS)]


def test_one_that_dies_ends_all(serve: Serve, tmp_path: Path) -> None:
    serve(of_files(model(), 3))
    # The process group has no connections any more: nobody waits for it at the end.
    result = ranks(tmp_path, FAILS % "os._exit(9)" + "inrush_lost = True\n")
    for rank, one in enumerate(result):
        if rank == 2:
            assert one is None
        else:
            assert one[0] == "Lost" and "lost another one" in one[1]


def test_what_is_wrong_at_the_beginning(serve: Serve, tmp_path: Path) -> None:
    files = of_files(model(), 3)
    del files["data/m/m-1.safetensors"]
    serve(files | {"data/ok/x.safetensors": files["data/m/m-0.safetensors"]})
    result = ranks(tmp_path, """
result = [failure(lambda: inrush.safetensors.open(URI, process_group=group)),
          failure(lambda: inrush.safetensors.open("s3://data/ok/", process_group=group,
                                                  names=["scalar", f"large.{rank}"])),
          failure(lambda: inrush.safetensors.open("s3://data/ok/", process_group=group,
                                                  shard={"large.0": (0, rank + 1, size)})),
          failure(lambda: inrush.safetensors.open("s3://data/ok/", process_group=group))]
""")
    for rank, (missing, other, beyond, fine) in enumerate(result):
        assert missing[0] == "NotFound" and "m-1.safetensors" in missing[1]
        assert missing[1].startswith("rank 0: ") == (rank != 0)
        assert other[0] == "ValueError" and "must be the same" in other[1]
        assert beyond[0] == "ValueError" and "no part 4 of 4" in beyond[1]
        assert fine is None
