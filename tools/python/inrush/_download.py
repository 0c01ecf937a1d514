"""`get` and `sync`: runs of the program in a process of its own, which report in JSON."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from collections.abc import Callable
from typing import Any, Optional, Union

from ._errors import Error, Usage, from_native
from ._start import start

Progress = Callable[[dict[str, Any]], None]

# Options of a client that the command does not have.
_NOT_OF_COMMANDS = frozenset({"share"})


def words_of(options: dict[str, Any]) -> list[str]:
    """Options as the command line has them."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            words += [f"{option}={one}" for one in value]
        else:
            text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
            words.append(f"{option}={text}")
    return words


def run_transfer(
    command: str,
    client: dict[str, Any],
    sources: list[str],
    dest: Union[str, os.PathLike[str]],
    progress: Optional[Progress],
    options: dict[str, Any],
) -> dict[str, Any]:
    """Runs the command to its end; see `Client.get`."""
    if progress is not None and options.get("report") is not None:
        raise Usage("give progress or report, not both")
    settings = {name: value for name, value in client.items() if name not in _NOT_OF_COMMANDS}
    program = [*start(), command, "--json", "--quiet"]
    words = [*words_of({**settings, **options}), "--", *sources, os.fspath(dest)]
    reader: Optional[int] = None
    writer: Optional[int] = None
    try:
        if progress is not None:
            reader, writer = os.pipe()
            words.insert(0, f"--report=/dev/fd/{writer}")
        process = subprocess.Popen(
            [*program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=() if writer is None else (writer,),
        )
        if writer is not None:
            os.close(writer)
            writer = None
        try:
            output, said = _follow(process, reader, progress)
        except BaseException:
            _end(process)
            raise
    finally:
        for descriptor in (reader, writer):
            if descriptor is not None:
                os.close(descriptor)
    return _report(process.returncode, output, said)


def _follow(
    process: subprocess.Popen[bytes], reader: Optional[int], progress: Optional[Progress]
) -> tuple[bytes, bytes]:
    """What it prints; reports each object meanwhile."""
    assert process.stdout is not None and process.stderr is not None
    printed = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    tally = _Tally(progress)
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        for descriptor in (*printed, *([] if reader is None else [reader])):
            selector.register(descriptor, selectors.EVENT_READ)
        output, said = printed.values()
        while selector.get_map():
            for ready, _ in selector.select():
                piece = os.read(ready.fd, 1 << 16)
                if not piece:
                    selector.unregister(ready.fd)
                elif ready.fd in printed:
                    printed[ready.fd] += piece
                else:
                    tally.take(piece)
    process.wait()
    return bytes(output), bytes(said)


class _Tally:
    """Counts the objects of a report, and calls `progress` for each."""

    def __init__(self, progress: Optional[Progress]) -> None:
        self._progress = progress
        self._rest = b""
        self._objects = 0
        self._bytes = 0

    def take(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            entry = json.loads(line)
            self._objects += 1
            self._bytes += entry.get("bytes") or 0
            if self._progress is not None:
                counts = {"objects": self._objects, "bytes": self._bytes, "object": entry}
                self._progress(counts)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends it as Ctrl-C does: what is complete stays, and a later run resumes."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    process.wait()


def _report(code: int, output: bytes, said: bytes) -> dict[str, Any]:
    """The report, or the error that it has."""
    lines = output.decode(errors="replace").splitlines()
    report: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    if code == 0:
        return report
    words = said.decode(errors="replace").strip()
    message = report.get("error") or words or f"inrush ended with exit code {code}"
    error = from_native(report.get("error_kind") or "internal", message)
    assert isinstance(error, Error)
    error.report = report or None
    raise error
