"""`get` and `sync`: downloads in this process, with the options of the command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

from ._aio import rung
from ._errors import Closed, Error, Interrupted
from ._native import Core, Download

Progress = Callable[[dict[str, Any]], None]


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


class Transfer:
    """A download that has been started; see `Client.get`."""

    def __init__(
        self,
        core: Core,
        command: str,
        sources: Sequence[str],
        dest: Union[str, os.PathLike[str]],
        progress: Optional[Progress],
        options: dict[str, Any],
    ) -> None:
        words = ["inrush", command, *words_of(options), "--", *sources, os.fspath(dest)]
        #: Whoever closes it ends the download.
        self.owner = core
        self._tally = _Tally(progress)
        self.download = core.download(words, list(sources), progress is not None)

    def run(self) -> dict[str, Any]:
        """Waits for its end. Whatever is raised meanwhile ends it first."""
        download = self.download
        try:
            while (lines := download.take()) is not None:
                self._tally.take(lines)
                if not lines:
                    download.wait()
            return self._report()
        except BaseException:
            download.close()
            raise

    async def async_run(self) -> dict[str, Any]:
        """`run` for event loops."""
        download = self.download
        try:
            while (lines := download.take()) is not None:
                self._tally.take(lines)
                if not lines:
                    await rung(download)
            return self._report()
        except GeneratorExit:
            # Nobody waits any more.
            download.close()
            raise
        except BaseException:
            download.cancel()
            # Files are written until it has ended, however often it is cancelled.
            while (lines := download.take()) is not None:
                if not lines:
                    with contextlib.suppress(asyncio.CancelledError):
                        await rung(download)
            download.close()
            raise

    def _report(self) -> dict[str, Any]:
        """The report, or the error that it has."""
        document, error, errors = self.download.result()
        report: dict[str, Any] = json.loads(document)
        if error is None:
            return report
        if isinstance(error, Interrupted) and self.owner.closed:
            raise Closed("the client is closed")
        assert isinstance(error, Error)
        error.report = report
        error.errors = tuple(one for one in errors if isinstance(one, Error))
        raise error


class _Tally:
    """Counts the objects of a report, and hands each on."""

    def __init__(self, progress: Optional[Progress]) -> None:
        self._progress = progress
        self._objects = 0
        self._bytes = 0

    def take(self, lines: list[str]) -> None:
        for line in lines:
            entry = json.loads(line)
            self._objects += 1
            self._bytes += entry.get("bytes") or 0
            if self._progress is not None:
                counts = {"objects": self._objects, "bytes": self._bytes, "object": entry}
                self._progress(counts)
