"""Which objects a process reads, and in which order: the rules of the command, in Python alone.

The order of an epoch is that of ``--shuffle-seed``, a shard is that of ``--shard I/N``, and the
rank of a process is found where the command finds it. A job that mixes the command and this package
therefore divides its objects in one way. Nothing here opens a connection.
"""

from __future__ import annotations

import json
import operator
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

#: The increment of SplitMix64's state: 2^64 divided by the golden ratio.
GOLDEN = 0x9E3779B97F4A7C15
#: Most hosts or processes of a job.
RANKS_MAX = 65_536
#: Most objects of an epoch.
OBJECTS_MAX = 2**32 - 1
#: Where SageMaker describes the hosts of a job.
RESOURCE_CONFIG = "/opt/ml/input/config/resourceconfig.json"
#: Most bytes of that file that are read.
RESOURCE_CONFIG_BYTES_MAX = 1 << 20

_MASK = 2**64 - 1


class SplitMix64:
    """SplitMix64 (Steele, Lea and Flood, 2014): random 64-bit words that a seed alone decides.

    For orders, not for secrets.
    """

    def __init__(self, state: int) -> None:
        self._state = state & _MASK

    def next_word(self) -> int:
        """The next word, from 0 to 2^64 - 1."""
        self._state = (self._state + GOLDEN) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)


def permutation(seed: int, epoch: int, count: int) -> array[int]:
    """The order of `count` objects, 0 to `count - 1` in key order, for this seed and epoch.

    It takes four bytes an object. A negative seed is taken modulo 2^64, as the command takes it.

    :raises ValueError: `epoch` or `count` is negative, or there are 2^32 objects or more.
    """
    # Integers of NumPy and PyTorch would wrap around.
    seed, epoch, count = operator.index(seed), operator.index(epoch), operator.index(count)
    if epoch < 0:
        raise ValueError(f"the epoch is {epoch}: epochs are counted from 0")
    if not 0 <= count <= OBJECTS_MAX:
        raise ValueError(f"{count} objects: expected 0 to {OBJECTS_MAX}")
    state = (seed & _MASK) ^ ((epoch + 1) * GOLDEN & _MASK)
    order = array("I", range(count))
    # SplitMix64 is written out: a call for each word takes twice the time.
    for last in range(count - 1, 0, -1):
        state = (state + GOLDEN) & _MASK
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        other = ((mixed ^ (mixed >> 31)) * (last + 1)) >> 64
        order[last], order[other] = order[other], order[last]
    return order


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count` parts of every epoch: the places ``p`` with ``p % count == index``.

    :raises ValueError: `index` is not below `count`.
    """

    #: Which, from 0.
    index: int = 0
    #: Of how many; not 0.
    count: int = 1

    def __post_init__(self) -> None:
        for name in ("index", "count"):
            object.__setattr__(self, name, operator.index(getattr(self, name)))
        if not 0 <= self.index < self.count:
            raise ValueError(f"'{self.index}/{self.count}' is not a shard: "
                             "expected I/N with I below N, such as 0/4")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that ``--shard I/N`` means.

        :raises ValueError: it is no shard.
        """
        index, _, count = text.partition("/")
        if not (index.isascii() and index.isdigit() and count.isascii() and count.isdigit()):
            raise ValueError(f"'{text}' is not a shard: "
                             "expected I/N with I below N, such as 0/4")
        return cls(int(index), int(count))

    def takes(self, place: int) -> bool:
        """Whether what is at this place of the epoch belongs to it."""
        return place % self.count == self.index

    def share_of(self, places: int) -> int:
        """How many of `places` places belong to it."""
        return (places + self.count - 1 - self.index) // self.count

    def split(self, part: int, parts: int) -> Shard:
        """Part `part` of `parts` of this shard, such as that of one worker of a DataLoader.

        :raises ValueError: `part` is not below `parts`.
        """
        inner = Shard(part, parts)
        return Shard(self.index + self.count * inner.index, self.count * inner.count)


class Order(Sequence[int]):
    """The objects of a shard in the order of one epoch, as numbers in key order.

    With a seed it keeps the permutation: four bytes for each object of the epoch. Without one it
    takes no memory.
    """

    def __init__(self, count: int, *, seed: int | None = None, epoch: int = 0,
                 shard: Shard | None = None, drop_uneven: bool = False) -> None:
        """
        :param count: how many objects the epoch has.
        :param seed: shuffles the epoch; None leaves it in key order.
        :param epoch: which epoch, from 0.
        :param shard: the part of the epoch; None is all of it.
        :param drop_uneven: leaves out the last ``count % shard.count`` places, so that all shards
            have the same length.
        :raises ValueError: `count` or `epoch` is out of range, or `drop_uneven` would leave out all
            objects, since there are fewer than shards.
        """
        self._shard = Shard() if shard is None else shard
        self._order = None if seed is None else permutation(seed, epoch, count)
        if drop_uneven and 0 < count < self._shard.count:
            raise ValueError(f"drop_uneven would leave out all objects: there are {count} for "
                             f"{self._shard.count} processes and workers; use fewer of them, or "
                             "more objects")
        places = count - count % self._shard.count if drop_uneven else count
        self._length = self._shard.share_of(places)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._length))]
        index = operator.index(index)
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"place {index} of {self._length}")
        place = self._shard.index + index * self._shard.count
        return place if self._order is None else self._order[place]

    def __iter__(self) -> Iterator[int]:
        return (self[at] for at in range(self._length))

    def numbers(self) -> Sequence[int]:
        """All of them, which are quicker to get at: an array of four bytes each, or a range."""
        first, step = self._shard.index, self._shard.count
        places = range(first, first + self._length * step, step)
        return places if self._order is None else self._order[places.start:places.stop:step]


@dataclass(frozen=True)
class Rank:
    """Which host or process of how many this is, and what says so."""

    #: Which, from 0.
    index: int
    #: Of how many.
    count: int
    #: Where it comes from: ``RANK and WORLD_SIZE``.
    source: str

    @property
    def shard(self) -> Shard:
        """What this host or process reads of each epoch."""
        return Shard(self.index, self.count)


@dataclass(frozen=True)
class _Launcher:
    """The variables of a launcher. The first size that is set counts."""

    rank: str
    sizes: tuple[str, ...]
    #: How many processes run on this host.
    processes_here: str | None = None
    #: How many processes run on all hosts.
    processes: str | None = None


_OWN = _Launcher("INRUSH_HOST_RANK", ("INRUSH_HOST_COUNT",))
_KUBERNETES = _Launcher("JOB_COMPLETION_INDEX", ("INRUSH_HOST_COUNT",))
_OF_HOSTS = (
    _Launcher("GROUP_RANK", ("GROUP_WORLD_SIZE",), processes_here="LOCAL_WORLD_SIZE"),
    _Launcher("PET_NODE_RANK", ("PET_NNODES",)),
    _Launcher("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",),
              processes_here="OMPI_COMM_WORLD_LOCAL_SIZE"),
    _Launcher("SLURM_NODEID", ("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
              processes="SLURM_STEP_NUM_TASKS"),
    _Launcher("PMI_RANK", ("PMI_SIZE",), processes_here="MPI_LOCALNRANKS"),
)
_OF_PROCESSES = (
    _Launcher("RANK", ("WORLD_SIZE",)),
    _Launcher("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    _Launcher("PMI_RANK", ("PMI_SIZE",)),
    _Launcher("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
)
#: The process among those of this host, and how many they are.
_ON_THIS_HOST = (
    ("LOCAL_RANK", ("LOCAL_WORLD_SIZE",)),
    ("OMPI_COMM_WORLD_LOCAL_RANK", ("OMPI_COMM_WORLD_LOCAL_SIZE",)),
    ("MPI_LOCALRANKID", ("MPI_LOCALNRANKS",)),
    ("SLURM_LOCALID", ("SLURM_NTASKS_PER_NODE",)),
)


def find_rank(unit: Literal["host", "process"] = "process",
              environ: Mapping[str, str] | None = None,
              resource_config: str | os.PathLike[str] | None = RESOURCE_CONFIG) -> Rank | None:
    """Finds which host or process of the job this is; None where nothing says it.

    The first of these that is there decides: ``INRUSH_HOST_RANK`` and ``INRUSH_HOST_COUNT``; of
    hosts SageMaker's ``resourceconfig.json``; the launcher (torchrun, Kubeflow, Open MPI, Slurm,
    MPICH or Intel MPI); ``JOB_COMPLETION_INDEX`` of Kubernetes with ``INRUSH_HOST_COUNT``.

    :param unit: whether hosts are counted or processes.
    :param environ: the variables; None are those of this process.
    :param resource_config: the path of SageMaker's file, which need not be there; None for none.
    :raises ValueError: what decides is not whole or contradicts itself, or several processes of a
        host would each take the share of the host. The message names the variables.
    """
    variables = os.environ if environ is None else environ
    in_kubernetes = bool(variables.get(_KUBERNETES.rank)) and not variables.get(_OWN.rank)
    own = None if in_kubernetes else _find(_OWN, variables)
    if own is not None:
        return own
    launchers = _OF_HOSTS if unit == "host" else _OF_PROCESSES
    if unit == "host":
        described = _described(resource_config)
        if described is not None:
            return _agreed(described, launchers, variables)
    for launcher in launchers + ((_KUBERNETES,) if in_kubernetes else ()):
        found = _find(launcher, variables)
        if found is not None:
            return found
    return None


def local_rank(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Which process of this host this is, and of how many; ``(0, 1)`` where nothing says it.

    For dividing the host's connections and memory, so what makes no sense is ignored.
    """
    variables = os.environ if environ is None else environ
    for rank, sizes in _ON_THIS_HOST:
        texts = [variables.get(rank, "")] + [variables.get(size, "") for size in sizes]
        numbers = [int(text) for text in texts if text.isascii() and text.isdigit()]
        if len(numbers) == len(texts) and numbers[0] < numbers[1] <= RANKS_MAX:
            return numbers[0], numbers[1]
    return 0, 1


def _agreed(described: Rank, launchers: Sequence[_Launcher],
            variables: Mapping[str, str]) -> Rank:
    """What SageMaker's file says, unless the launcher has another number of hosts."""
    for launcher in launchers:
        try:
            found = _find(launcher, variables)
        except ValueError:
            # The file decides, and needs no launcher.
            break
        if found is None:
            continue
        if found.count != described.count:
            hosts = "1 host" if described.count == 1 else f"{described.count} hosts"
            raise ValueError(f"{described.source} says {hosts}, but {found.source} says "
                             f"{found.count}; remove the file if it is of another job, or give "
                             "the shard yourself")
        break
    return described


def _described(path: str | os.PathLike[str] | None) -> Rank | None:
    """What `resourceconfig.json` says: the place of `current_host` in `hosts`."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            text = file.read(RESOURCE_CONFIG_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    name = os.path.basename(path)

    def refused(what: str) -> ValueError:
        return ValueError(f"{name}: {what}; remove the file, or give the shard yourself")

    if len(text) > RESOURCE_CONFIG_BYTES_MAX:
        raise refused(f"it has more than {RESOURCE_CONFIG_BYTES_MAX} bytes")
    try:
        config = json.loads(text)
    except ValueError as error:
        raise refused(f"it is no JSON: {error}") from None
    current = config.get("current_host") if isinstance(config, dict) else None
    hosts = config.get("hosts") if isinstance(config, dict) else None
    if not isinstance(current, str):
        raise refused("current_host is no string")
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise refused("hosts is no list of strings")
    if current not in hosts or len(set(hosts)) != len(hosts):
        raise refused(f"hosts does not have {current!r} once, or another host twice")
    _check("hosts", "hosts", hosts.index(current), len(hosts))
    return Rank(hosts.index(current), len(hosts), str(name))


def _find(launcher: _Launcher, variables: Mapping[str, str]) -> Rank | None:
    """What the variables of this launcher say; None where none of them is set."""

    def number(name: str) -> int | None:
        text = variables.get(name, "")
        if not text:
            # An empty variable is how scripts take one away.
            return None
        stripped = text.strip()
        digits = stripped[1:] if stripped.startswith("+") else stripped
        if not (digits.isascii() and digits.isdigit() and int(digits) < 2**32):
            raise ValueError(f"{name} is '{text[:100]}', which is no number; {_ADVICE}")
        return int(digits)

    size_name = next((name for name in launcher.sizes if variables.get(name)), None)
    size = None if size_name is None else number(size_name)
    rank, rank_name = number(launcher.rank), launcher.rank
    if rank is None and size is None:
        return None
    if rank is None and size == 1:
        rank = 0
    if rank is None:
        raise ValueError(f"{size_name} is {size}, but {rank_name} is not set; {_ADVICE}")
    if size is None or size_name is None:
        raise ValueError(f"{rank_name} is {rank}, but {launcher.sizes[0]} is not set; {_ADVICE}")
    _check(rank_name, size_name, rank, size)
    for name, most in ((launcher.processes_here, 1), (launcher.processes, size)):
        count = None if name is None else number(name)
        if count is not None and count > most:
            raise ValueError(f"several processes run on one host ({name} is {count}); "
                             "start one for each host, or count processes")
    return Rank(rank, size, f"{rank_name} and {size_name}")


_ADVICE = "give the shard yourself"


def _check(rank_name: str, size_name: str, rank: int, size: int) -> None:
    if size > RANKS_MAX:
        raise ValueError(f"{size_name} says {size}, at most {RANKS_MAX} are allowed; {_ADVICE}")
    if rank >= size:
        raise ValueError(f"{rank_name} is {rank}, but {size_name} is {size}: "
                         f"ranks begin with 0; {_ADVICE}")
