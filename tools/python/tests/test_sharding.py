"""Orders, shards and ranks against the vectors of the guide, and against the program itself."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PROJECT, program, require, small_objects

from inrush import _stream
from inrush.sharding import Order, Rank, Shard, SplitMix64, find_rank, local_rank, permutation


def test_the_published_words() -> None:
    words = SplitMix64(1234567)
    assert [words.next_word() for _ in range(3)] == \
        [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_the_table_of_the_guide() -> None:
    text = (PROJECT / "src/guide/training.md").read_text()
    rows = re.findall(r"\| (-?\d+) \| (\d+) \| ([\d ]+) \| ([\d ]+) \| ([\d ]+) \|", text)
    assert len(rows) == 3
    for seed, epoch, *orders in rows:
        everything, first, second = ([int(word) for word in order.split()] for order in orders)
        assert list(permutation(int(seed), int(epoch), 8)) == everything
        for index, expected in enumerate((first, second)):
            order = Order(8, seed=int(seed), epoch=int(epoch), shard=Shard(index, 2))
            assert list(order) == expected == order[:] and len(order) == 4


def test_the_vectors_of_the_program() -> None:
    text = (PROJECT / "src/plan/epoch.rs").read_text()
    rows = re.findall(r"check\((\S+), (\S+), &\[([\d, ]+)\]\)", text)
    rows += re.findall(r"check\((\S+), (u64::MAX - 1), &\[([\d, ]+)\]\)", text)
    assert len(rows) == 6
    for seed, epoch, order in rows:
        numbers = {"u64::MAX": 2**64 - 1, "u64::MAX - 1": 2**64 - 2}
        seed, epoch = (numbers.get(word) or int(word.replace("_", "")) for word in (seed, epoch))
        expected = [int(word) for word in order.split(",")]
        assert list(permutation(seed, epoch, len(expected))) == expected
    many = permutation(5, 3, 100_000)
    digest = hashlib.sha256(b"".join(number.to_bytes(4, "little") for number in many)).hexdigest()
    assert digest == "668fa700db64e0b0b5f5ae42171eb1dd9fa0d348f5458e2bbbafb1ef78df2faf"


def test_an_epoch_is_there_once_in_all_shards() -> None:
    for count in (0, 1, 7, 40):
        for seed in (None, 3):
            parts = [Order(count, seed=seed, epoch=2, shard=Shard(rank, 3).split(worker, 4))
                     for rank in range(3) for worker in range(4)]
            assert sorted(number for part in parts for number in part) == list(range(count))
            assert [len(list(part)) for part in parts] == [len(part) for part in parts]
            if count in (1, 2):
                with pytest.raises(ValueError, match="would leave out all objects"):
                    Order(count, seed=seed, shard=Shard(2, 3), drop_uneven=True)
                continue
            even = [Order(count, seed=seed, shard=Shard(rank, 3), drop_uneven=True)
                    for rank in range(3)]
            assert {len(part) for part in even} == {count // 3}
    # The workers of a process have together what the command's shard has, in turns.
    whole = list(Order(40, seed=9, shard=Shard(1, 2)))
    parts = [Order(40, seed=9, shard=Shard(1, 2).split(worker, 4)) for worker in range(4)]
    assert [part[at] for at in range(5) for part in parts] == whole


def test_integers_of_numpy_are_taken_as_they_are() -> None:
    numpy = require("numpy")
    shard = Shard(numpy.uint8(200), numpy.uint8(255))
    assert (shard, shard.split(numpy.uint8(3), numpy.uint8(4))) == (Shard(200, 255),
                                                                   Shard(200, 255).split(3, 4))
    order = Order(300, seed=numpy.uint8(7), epoch=numpy.uint8(255))
    assert list(order) == list(Order(300, seed=7, epoch=255))
    assert order[numpy.int8(-5)] == order[295]


def test_what_is_no_shard() -> None:
    assert Shard.parse("2/3") == Shard(2, 3)
    for bad in ["", "1", "3/3", "-1/3", "a/b", "0/0", "1/2/3", "²/3"]:
        with pytest.raises(ValueError, match="expected I/N"):
            Shard.parse(bad)
    with pytest.raises(IndexError):
        Order(4)[4]
    for epoch, count in ((-1, 3), (0, 2**32)):
        with pytest.raises(ValueError):
            permutation(1, epoch, count)


def test_the_program_streams_in_this_order(serve: Callable[..., object], tmp_path: Path) -> None:
    keys = small_objects(23)
    serve(keys)
    names = sorted(keys)
    for words, order in [
        (["--shuffle-seed", "42", "--shard", "1/3"],
         [Order(23, seed=42, epoch=epoch, shard=Shard(1, 3)) for epoch in range(2)]),
        (["--shard", "0/2"], [Order(23, shard=Shard(0, 2))] * 2),
        (["--shuffle-seed", str(2**64 - 7)],
         [Order(23, seed=-7, epoch=epoch) for epoch in range(2)]),
    ]:
        folder = tmp_path / "-".join(words).replace("/", "_")
        folder.mkdir()
        child = subprocess.Popen([program("inrush"), "pipe", "--quiet", "--no-sign-request",
                                  "--epochs", "2", *words, "s3://data/train/", folder / "c"])
        try:
            for epoch in range(2):
                pipe = folder / f"c_{epoch}"
                while not pipe.exists():
                    assert child.poll() is None, "the program ended"
                assert pipe.read_bytes() == b"".join(keys[names[at]] for at in order[epoch])
            assert child.wait() == 0
        finally:
            child.kill()
            child.wait()


def test_each_launcher_says_which_process_this_is() -> None:
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}
    torchrun = {"RANK": "9", "WORLD_SIZE": "16", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2"}
    assert find_rank(environ=torchrun) == Rank(9, 16, "RANK and WORLD_SIZE")
    assert find_rank(environ={"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_NODEID": "0"}) == \
        Rank(3, 8, "SLURM_PROCID and SLURM_NTASKS")
    # mpirun in a Slurm job: Slurm's rank is that of the daemon.
    for rank, size in [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")]:
        assert find_rank(environ={rank: "5", size: "16", **slurm}) == \
            Rank(5, 16, f"{rank} and {size}")
    assert find_rank(environ={}) is None
    assert find_rank(environ={"INRUSH_HOST_RANK": "2", "INRUSH_HOST_COUNT": "3", **torchrun}) == \
        Rank(2, 3, "INRUSH_HOST_RANK and INRUSH_HOST_COUNT")
    assert local_rank({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}) == (3, 8)
    assert local_rank({"LOCAL_RANK": "8", "LOCAL_WORLD_SIZE": "8"}) == (0, 1)


@pytest.mark.parametrize(("variables", "expected"), [
    ({}, None),
    ({"RANK": "1", "WORLD_SIZE": "2"}, None),
    ({"SLURM_NODEID": "0", "SLURM_NNODES": "4"}, Rank(0, 4, "SLURM_NODEID and SLURM_NNODES")),
    ({"SLURM_NODEID": "1", "SLURM_NNODES": "4", "SLURM_STEP_NUM_NODES": "2"},
     Rank(1, 2, "SLURM_NODEID and SLURM_STEP_NUM_NODES")),
    ({"GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"},
     Rank(1, 2, "GROUP_RANK and GROUP_WORLD_SIZE")),
    ({"PET_NODE_RANK": "2", "PET_NNODES": "3", "JOB_COMPLETION_INDEX": "2"},
     Rank(2, 3, "PET_NODE_RANK and PET_NNODES")),
    ({"JOB_COMPLETION_INDEX": "3", "INRUSH_HOST_COUNT": "4"},
     Rank(3, 4, "JOB_COMPLETION_INDEX and INRUSH_HOST_COUNT")),
    ({"SLURM_NNODES": "1", "PMI_RANK": ""}, Rank(0, 1, "SLURM_NODEID and SLURM_NNODES")),
])
def test_each_launcher_says_which_host_this_is(variables: dict[str, str],
                                               expected: Rank | None) -> None:
    assert find_rank("host", variables, None) == expected


@pytest.mark.parametrize(("variables", "expected"), [
    ({"SLURM_NNODES": "4"}, "SLURM_NNODES is 4, but SLURM_NODEID is not set"),
    ({"GROUP_RANK": "1", "SLURM_NODEID": "0", "SLURM_NNODES": "4"},
     "GROUP_RANK is 1, but GROUP_WORLD_SIZE is not set"),
    ({"SLURM_NODEID": "4", "SLURM_NNODES": "4"},
     "SLURM_NODEID is 4, but SLURM_NNODES is 4: ranks begin with 0"),
    ({"PET_NODE_RANK": "0", "PET_NNODES": "1:4"}, "PET_NNODES is '1:4', which is no number"),
    ({"JOB_COMPLETION_INDEX": "0"}, "JOB_COMPLETION_INDEX is 0, but INRUSH_HOST_COUNT is not set"),
    ({"INRUSH_HOST_COUNT": "2"}, "INRUSH_HOST_COUNT is 2, but INRUSH_HOST_RANK is not set"),
    ({"PMI_RANK": "0", "PMI_SIZE": "65537"}, "PMI_SIZE says 65537, at most 65536 are allowed"),
    ({"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "8"},
     "several processes run on one host (LOCAL_WORLD_SIZE is 8)"),
    ({"SLURM_NODEID": "0", "SLURM_NNODES": "2", "SLURM_STEP_NUM_TASKS": "16"},
     "several processes run on one host (SLURM_STEP_NUM_TASKS is 16)"),
])
def test_what_is_not_whole_is_an_error(variables: dict[str, str], expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        find_rank("host", variables, None)


def test_sagemaker_describes_its_hosts(tmp_path: Path,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "resourceconfig.json"
    hosts = ["algo-1", "algo-10", "algo-11", *(f"algo-{number}" for number in range(2, 10)),
             "algo-12"]
    path.write_text(json.dumps({"current_host": "algo-11", "hosts": hosts}))
    assert find_rank("host", {}, path) == Rank(2, 12, "resourceconfig.json")
    alike = {"SLURM_NODEID": "0", "SLURM_NNODES": "12"}
    assert find_rank("host", alike, path) == Rank(2, 12, "resourceconfig.json")
    assert find_rank("host", {"SLURM_NNODES": "12"}, path) == Rank(2, 12, "resourceconfig.json")
    with pytest.raises(ValueError, match="resourceconfig.json says 12 hosts, but SLURM_NODEID and "
                                         "SLURM_NNODES says 2"):
        find_rank("host", {"SLURM_NODEID": "0", "SLURM_NNODES": "2"}, path)
    # A process that no launcher started is that of its host.
    monkeypatch.setattr("inrush.sharding.RESOURCE_CONFIG", str(path))
    assert _stream.this_rank() == Shard(2, 12)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "24")
    assert _stream.this_rank() == Shard(1, 24)
    path.write_text("{}")
    with pytest.raises(ValueError, match="current_host is no string"):
        find_rank("host", {}, path)
    assert find_rank("host", {}, tmp_path / "none") is None
    assert find_rank("process", {}, path) is None, "processes are no hosts"
