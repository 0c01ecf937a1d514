"""The command line of `tools/check.py` and `tools/bench.py`: which parts there are, the arguments
that they share, where they run, and how they end.

A part is a check or a measurement: a function that is given a `Lab`, words for `--help`, and
options of its own. Parts that share their function run together; others run in processes of their
own, one after the other, since some leave the network or change what is mounted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from inspect import cleandoc
from pathlib import Path
from types import ModuleType
from typing import Any

from lab import client, process
from lab.install import SYSTEM_PATH, build_folder
from lab.process import INTERRUPTED, LabError, Word, Wrong, say
from lab.servers import origin

WRONG, NO_WORK = 1, 2
"""Exit codes: something is not as it has to be; the lab could not do its work."""
Add = Callable[..., Any]
"""`ArgumentParser.add_argument`."""


@dataclass(frozen=True)
class Part:
    """A check or a measurement."""

    run: Callable[[Lab], None]
    about: str
    """The first line says what it is."""
    options: Callable[[Add], None] | None = None
    needs_programs: bool = True
    """Programs that are not there end it before it begins."""
    on_disk: bool = False
    """The temp folder may be in memory: without `--disk` it works in the build folder."""


def of(module: ModuleType, **more: Any) -> Part:
    """A module as a part: its words, its `run`, and its `options` if it has some."""
    return Part(module.run, module.__doc__ or "", getattr(module, "options", None), **more)


@dataclass
class Lab:
    """Where parts run, with what, and what comes of it."""

    names: Sequence[str]
    args: Namespace
    temp: Path
    """A folder that goes at the end, as all does that is entered into the stack."""
    stack: ExitStack
    begun: float = field(default_factory=time.monotonic)
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    absent: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """What `--check` finds wrong with figures."""

    @property
    def inrush(self) -> Path:
        """The program."""
        return Path(self.args.inrush or client.default_program()).resolve()

    @property
    def origin(self) -> Path:
        """The in-repo server."""
        return Path(self.args.origin or origin.default_program()).resolve()

    def command(self, name: str, *words: Word, url: str) -> list[Word]:
        """A command line of the program that asks this endpoint."""
        return client.command(self.inrush, name, *words, url=url)

    def env(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """An environment without credentials, at home in the temp folder, plus `extra`."""
        return client.clean_environment(self.temp, extra)

    def folder(self, name: str) -> Path:
        """A new folder in the temp folder."""
        path = self.temp / name
        path.mkdir(parents=True)
        return path

    def in_memory(self) -> Path:
        """A folder for what is served, where reading takes no disk."""
        return Path(self.stack.enter_context(tempfile.TemporaryDirectory(
            prefix="inrush-lab-", dir=self.args.memory_folder)))

    def serve(self, *words: Word) -> str:
        """The endpoint of an in-repo server that serves until the parts end."""
        return self.stack.enter_context(self.serving(*words))

    def serving(self, *words: Word) -> AbstractContextManager[str]:
        """An in-repo server with a folder of its own."""
        return origin.serving(self.origin, words, Path(tempfile.mkdtemp(dir=self.temp)))

    def with_keys(self, access_key: str, secret_key: str) -> dict[str, str]:
        """Serves the folders of `buckets` in the temp folder for who has these keys; the
        environment in which programs find the server, and inrush by its name."""
        url = self.serve("--root", self.temp / "buckets", "--access-key", access_key,
                         "--secret-key", secret_key)
        programs = self.folder("programs")
        (programs / "inrush").symlink_to(self.inrush)
        return self.env({"PATH": os.pathsep.join([str(programs), SYSTEM_PATH]),
                         "AWS_ENDPOINT_URL_S3": url, "AWS_REGION": "us-east-1",
                         "AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key})

    def report(self, case: str, complaint: str | None, detail: str = "") -> None:
        """Counts and prints a case."""
        self.passed += not complaint
        self.failed += bool(complaint)
        say(f"FAIL  {case}  {complaint}" if complaint else f"ok    {case}  {detail}".rstrip())

    def skip(self, case: str, reason: str) -> None:
        """Counts and prints a case that cannot be run here."""
        self.skipped += 1
        say(f"skip  {case}  {reason}")

    def miss(self, name: str, reason: object) -> None:
        """What is absent, which is a failure unless `--may-skip` names it."""
        self.absent.append(name)
        self.failed += name not in self.args.may_skip
        say(f"\n!! SKIPPED: {name}: {reason}\n")

    def chosen(self, option: str, names: Iterable[str], default: Sequence[str] = ()) -> list[str]:
        """What an option such as `--case` asks for of these names; else the default, or all."""
        given, names = getattr(self.args, option), list(names)
        if unknown := set(given) - set(names):
            raise LabError(f"--{option}: no {', '.join(sorted(unknown))} among {', '.join(names)}")
        return [name for name in names if name in (given or default or names)]

    def among(self, names: Iterable[str]) -> list[str]:
        """Those of the names that `--only` asks for; all without it."""
        return self.chosen("only", names)

    def keep(self, name: str, figures: object) -> None:
        """Adds figures to the file of `--json`, which has one object."""
        if self.args.json:
            known = json.loads(self.args.json.read_text()) if self.args.json.is_file() else {}
            self.args.json.write_text(json.dumps({**known, name: figures}, indent=1) + "\n")

    def end(self) -> int:
        """The last lines; the exit code."""
        for complaint in self.complaints:
            say(complaint)
        words = ", ".join(self.names)
        if self.passed or self.failed:
            skipped = f", {self.skipped} skipped" if self.skipped else ""
            left_out = f"; LEFT OUT: {', '.join(self.absent)}" if self.absent else ""
            say(f"{words}: {self.passed} passed, {self.failed} failed{skipped} in "
                f"{time.monotonic() - self.begun:.0f} s{left_out}")
        return WRONG if self.failed or (self.complaints and self.args.check) else 0


def shared(add: Add) -> None:
    """The arguments that all parts have, where they mean something to them."""
    add("--inrush", type=Path, help="the program (default: INRUSH_BIN or the release build)")
    add("--origin", type=Path, help="the in-repo server (default: the release build)")
    add("--option", action="append", default=[], metavar="WORD",
        help="an option more for inrush; repeatable")
    add("--only", nargs="+", default=[], metavar="NAME", help="these cases alone")
    add("--may-skip", nargs="+", default=[], metavar="NAME",
        help="what may be absent; else that is a failure")
    add("--disk", "--temp", type=Path, metavar="FOLDER",
        help="a folder on a disk to work in (default: the temp folder, or the build folder)")
    add("--json", type=Path, metavar="FILE", help="also write all figures to this file")


def of_measurements(add: Add) -> None:
    """Those of everything that is measured."""
    add("--check", action="store_true", help="exit code 1 where a figure is not as it has to be")
    add("--runs", type=int, metavar="N", help="runs that count (default: mostly 5 or 3)")
    add("--case", action="append", default=[], metavar="NAME",
        help="one of the cases of a measurement that has some; repeatable")
    add("--peer", action="append", default=[], metavar="NAME",
        help="another program to run beside inrush; repeatable (default: all)")
    add("--quick", action="store_true", help="tiny objects and one run: whether it works")
    add("--memory-folder", type=Path, default=Path("/dev/shm"), metavar="FOLDER",
        help="a folder for what is served; up to 5 GiB (default: %(default)s)")


def arguments(doc: str, parts: Mapping[str, Part], default: Sequence[str],
              more: Sequence[Callable[[Add], None]], argv: Sequence[str]) -> Namespace:
    """The command line. `--help` behind names describes these; without names it lists all."""
    named = [name for name in parts if name in argv]
    if named:
        about = "\n\n".join(f"{name}: {cleandoc(parts[name].about)}" for name in named)
    else:
        width = max(map(len, parts))
        about = "\n".join([doc.strip(), "", *(
            f"  {name:{width}}  {part.about.strip().splitlines()[0]}"
            for name, part in parts.items())])
    parser = ArgumentParser(description=about, formatter_class=RawDescriptionHelpFormatter,
                            usage="%(prog)s NAME... [OPTION...]")
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(default),
                        help=f"--help behind it says more (default: {' '.join(default) or 'none'})")
    for of_all in (shared, *more):
        of_all(parser.add_argument)
    for own in dict.fromkeys(parts[name].options for name in named or default):
        if own:
            of_them = [name for name in named or default if parts[name].options == own]
            own(parser.add_argument_group(", ".join(of_them)).add_argument)
    args = parser.parse_args(argv)
    if unknown := set(args.names) - set(parts):
        parser.error(f"no {', '.join(sorted(unknown))} among {', '.join(parts)}")
    if not args.names:
        parser.print_help()
        sys.exit(NO_WORK)
    return args


def together(parts: Mapping[str, Part], names: Sequence[str], args: Namespace) -> int:
    """Runs parts that share their function; the exit code."""
    part, words = parts[names[0]], ", ".join(names)
    folder = args.disk or (build_folder() if part.on_disk else None)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as stack:
            temp = stack.enter_context(tempfile.TemporaryDirectory(
                prefix=f"inrush-{names[0]}-", dir=folder and folder.resolve()))
            lab = Lab(names, args, Path(temp), stack)
            for program in (lab.inrush, lab.origin) if part.needs_programs else ():
                if not program.is_file():
                    raise LabError(f"{program} is missing; build it with `cargo build --release "
                                   "--workspace` or give its path")
            try:
                part.run(lab)
            except Wrong as error:
                lab.report(names[0], str(error))
            return lab.end()
    except LabError as error:
        say(f"{words}: the lab cannot work: {error}")
        return NO_WORK
    except KeyboardInterrupt:
        say(f"{words}: interrupted")
        return INTERRUPTED


def apart(work: Callable[[], int]) -> int:
    """Runs it in a process of its own, which ends with this one; its exit code."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        process.die_with_parent()
        code = NO_WORK
        try:
            code = work()
        finally:
            sys.stdout.flush()
            os._exit(code)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return os.waitstatus_to_exitcode(status)


def main(doc: str, parts: Mapping[str, Part], default: Sequence[str] = (),
         more: Sequence[Callable[[Add], None]] = (), argv: Sequence[str] | None = None) -> int:
    """Runs the parts that the command line names; the highest exit code."""
    args = arguments(doc, parts, default, more, sys.argv[1:] if argv is None else argv)
    process.unwind_on_signals()
    if args.json:
        args.json.unlink(missing_ok=True)
    groups: dict[Callable[[Lab], None], list[str]] = {}
    for name in dict.fromkeys(args.names):
        groups.setdefault(parts[name].run, []).append(name)
    if len(groups) == 1:
        return together(parts, next(iter(groups.values())), args)
    codes = []
    for names in groups.values():
        codes.append(apart(partial(together, parts, names, args)))
        if codes[-1] in (INTERRUPTED, -signal.SIGINT):
            break
    return max(map(abs, codes))
