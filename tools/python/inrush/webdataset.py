"""WebDataset reads its shards through inrush: an opener for ``s3://`` addresses and for pipes.

::

    import inrush.webdataset, webdataset

    inrush.webdataset.register()
    dataset = webdataset.WebDataset("s3://bucket/train-{0000..0127}.tar", shardshuffle=100)

Addresses that a job has as commands (``pipe:aws s3 cp s3://bucket/train-0000.tar -``) need no
change: the commands that only print one object are not run, and inrush reads the object instead.
"""

from __future__ import annotations

import importlib
import io
import shlex
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ._stream import on_this_host

if TYPE_CHECKING:
    from . import Client

__all__ = ["gopen", "object_of_command", "register"]

Opener = Callable[..., Any]

#: The words of commands that print the object whose address follows them.
_PRINTING = (
    ("aws", "s3", "cp"), ("s3cmd", "get"), ("s5cmd", "cat"), ("inrush", "cat"),
)


def gopen(url: str, mode: str = "rb", bufsize: int = 8192, *, client: Client | None = None,
          **_options: Any) -> BinaryIO:
    """Opens an object for WebDataset.

    :param url: ``s3://BUCKET/KEY``; the key is literal.
    :param mode: ``rb``.
    :param bufsize: not used: the client reads ahead.
    :param client: what reads; None is `inrush.default_client()`, with the part of this worker.
    :raises io.UnsupportedOperation: the mode is another.
    :raises FileNotFoundError: there is no such object.
    :raises inrush.Error: it cannot be read.
    """
    if mode != "rb":
        raise io.UnsupportedOperation(f"{url}: inrush reads objects, and the mode is {mode!r}")
    return cast(BinaryIO, _own(client).open(url, sequential=True))


def register(client: Client | None = None, *, scheme: str = "s3", pipes: bool = True) -> None:
    """Has WebDataset read addresses of this scheme through inrush, from now on in this process.

    Workers that are forked inherit it; those that are spawned have to call it, too, for example in
    ``worker_init_fn``.

    :param client: what reads; None is `inrush.default_client()`.
    :param scheme: the scheme, without ``://``.
    :param pipes: also reads the objects of ``pipe:`` addresses whose command only prints one:
        ``aws s3 cp URI -``, ``s3cmd get URI -``, ``s5cmd cat URI``, ``inrush cat URI``, without
        other options than ``--quiet`` and ``--only-show-errors``. Other commands are run as before.
    """
    # The package has a function of the name of the module.
    schemes: dict[str, Opener] = importlib.import_module("webdataset.gopen").gopen_schemes

    def opened(url: str, mode: str = "rb", bufsize: int = 8192, **options: Any) -> Any:
        return gopen(f"s3://{url.partition('://')[2]}", mode, bufsize, client=client)

    schemes[scheme] = opened
    if not pipes:
        return
    former: Opener = getattr(schemes["pipe"], "inrush_former", schemes["pipe"])

    def piped(url: str, mode: str = "rb", bufsize: int = 8192, **options: Any) -> Any:
        uri = object_of_command(url.partition(":")[2]) if mode == "rb" else None
        if uri is None:
            return former(url, mode, bufsize, **options)
        return gopen(uri, mode, bufsize, client=client)

    piped.inrush_former = former  # type: ignore[attr-defined]
    schemes["pipe"] = piped


def object_of_command(command: str) -> str | None:
    """The object that a command prints, where that is all that the command does.

    None for everything else, such as a pipeline or an option that changes what is printed.
    """
    if any(character in command for character in "|&;<>$`\n\\(){}*?[]~#!"):
        # Words of the shell; it would change them.
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    words = [word for word in words if word not in ("--quiet", "--only-show-errors")]
    for begin in _PRINTING:
        if tuple(words[:len(begin)]) == begin:
            rest = words[len(begin):]
            to_standard_output = rest[1:] == (["-"] if begin[-1] in ("cp", "get") else [])
            if rest and to_standard_output and rest[0].startswith("s3://"):
                return rest[0]
    return None


#: What was given and the worker that it is for, and what that worker has of it.
_kept: tuple[tuple[weakref.ref[Client], int, int], Client] | None = None


def _own(client: Client | None) -> Client:
    """The client with the share of this process, or of this worker of a `DataLoader`: one for all
    its shards."""
    global _kept
    if client is None:
        from . import default_client

        client = default_client()
    torch_data = sys.modules.get("torch.utils.data")
    worker = None if torch_data is None else torch_data.get_worker_info()
    part = (0, 1) if worker is None else (worker.id, worker.num_workers)
    # Not by its number, which the next one has when it is gone.
    key = (weakref.ref(client), *part)
    if _kept is not None and _kept[0] == key:
        return _kept[1]
    own = on_this_host(client, *part)
    if own is not client:
        _kept = key, own
    return own
