"""Completion: do bash, zsh and fish offer profiles, buckets and keys when TAB is pressed?

    tools/check.py completions [--inrush PATH] [--origin PATH]

Each shell loads the script of `inrush completions` as people do. What the line of bash and of zsh,
at a terminal of its own, holds behind one TAB is read by that shell again, and must be the very
key, as the program reads it; fish says what it offers. One line for each case; exit 1 when a case
failed, 2 when the lab itself could not work. It installs what is missing (as root), listens on
loopback only, takes less than a minute, and removes all it made.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import client, process
from lab.checks import shells
from lab.process import LabError, say
from lab.servers import origin

ACCESS_KEY, SECRET = "AKIDLAB", "lab/secret"
RUN = "run$(id)`id`\"q'\\s.bin"
KEYS = ["plain.bin", "deep/below.bin", "two words.bin", "star*.bin", "[set].bin", "what?.bin",
        "back\\slash.bin", "quote's.bin", "dollar$HOME.bin", "ünïcode.bin", RUN]
# What is typed, and the key or bucket that is meant: as much as makes it the only one.
TYPED = [("s3://la", "s3://lab/"), ("s3://lab/pl", "s3://lab/plain.bin"),
         ("s3://lab/de", "s3://lab/deep/"), ("s3://lab/deep/", "s3://lab/deep/below.bin"),
         ("s3://lab/tw", "s3://lab/two words.bin"), ("s3://lab/st", "s3://lab/star*.bin"),
         ("s3://lab/wh", "s3://lab/what?.bin"), ("s3://lab/ba", "s3://lab/back\\slash.bin"),
         ("s3://lab/qu", "s3://lab/quote's.bin"), ("s3://lab/do", "s3://lab/dollar$HOME.bin"),
         ("s3://lab/ü", "s3://lab/ünïcode.bin"),
         # Typed with the character itself, quoted for the shell or not.
         ("s3://lab/\\[", "s3://lab/[set].bin"), ("s3://lab/star\\*", "s3://lab/star*.bin"),
         ("s3://lab/two\\ w", "s3://lab/two words.bin"),
         ("s3://lab/star\\\\\\*", "s3://lab/star*.bin"),
         ("'s3://lab/two w", "s3://lab/two words.bin"),
         ("'s3://lab/st", "s3://lab/star*.bin"),
         # Where a quote is open, what the shell would obey stays a part of the key.
         ('"s3://lab/do', "s3://lab/dollar$HOME.bin"), ('"s3://lab/ba', "s3://lab/back\\slash.bin"),
         ('"s3://lab/qu', "s3://lab/quote's.bin"), ("'s3://lab/qu", "s3://lab/quote's.bin"),
         ("'s3://lab/do", "s3://lab/dollar$HOME.bin"), ("s3://lab/ru", f"s3://lab/{RUN}"),
         ('"s3://lab/ru', f"s3://lab/{RUN}"), ("'s3://lab/ru", f"s3://lab/{RUN}")]


def environment(url: str, folder: Path) -> dict[str, str]:
    """What the shells and the program in them see; the program asks this server."""
    config = folder / "config"
    config.write_text("[default]\n[profile training]\n")
    credentials = folder / "credentials"
    credentials.write_text("[testing]\naws_access_key_id = A\n")
    return {"AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_CONFIG_FILE": str(config),
            "AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": str(folder), "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}


class Cases:
    """Counts what passed and what failed."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def check(self, shell: str, typed: str, found: str, expected: str) -> None:
        """One line for a case."""
        if found == expected:
            self.passed += 1
            say(f"ok    {shell:4} {typed}")
        else:
            self.failed += 1
            say(f"FAIL  {shell:4} {typed}: {found!r}, expected {expected!r}")


def drive(shell: str, program: Path, folder: Path, env: dict[str, str], cases: Cases) -> None:
    """bash and zsh: the last word of the line behind one TAB."""
    with shells.Terminal(shell, program, folder, env) as terminal:
        # What the shell makes of the line is what the program would get.
        for typed, meant in TYPED:
            line = terminal.completed(f"inrush ls {typed}")
            got = words_of(shell, line)
            cases.check(shell, typed, got[-1] if got else "", escaped(meant))
        for typed, meant in (("--profile tr", "training"), ("--profile te", "testing"),
                             ("--profile=tr", "--profile=training")):
            line = terminal.completed(f"inrush ls {typed}")
            cases.check(shell, typed, (words_of(shell, line) or [""])[-1], meant)


def words_of(shell: str, line: str) -> list[str]:
    """The words that the shell reads in the line. A quote that is open still is closed."""
    for end in ("", "'", '"'):
        script = f"set -- {line}{end}; for word; do printf '%s\\n' \"$word\"; done"
        run = subprocess.run([shell, "-fc" if shell == "zsh" else "-c", script],
                             capture_output=True, text=True, timeout=30)
        if run.returncode == 0 and not run.stderr:
            return run.stdout.splitlines()
    return []


def escaped(address: str) -> str:
    """The address as the program reads it: no character is a wildcard."""
    return "".join(f"\\{c}" if c in "*?[\\" else c for c in address)


def offer(program: Path, folder: Path, env: dict[str, str], cases: Cases) -> None:
    """fish: what it offers."""
    for typed, meant in TYPED:
        if typed == "s3://lab/star\\*":
            continue  # fish itself reads a star in the word as any characters
        found = shells.fish_offers(program, folder, env, f"inrush ls {typed}")
        cases.check("fish", typed, "\n".join(found), escaped(meant))
    for typed, meant in (("--profile tr", "training"), ("--profile=te", "--profile=testing")):
        found = shells.fish_offers(program, folder, env, f"inrush ls {typed}")
        cases.check("fish", typed, "\n".join(found), meant)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = client.argument_parser(__doc__)
    return parser.parse_args()


def main() -> int:
    """Runs the cases; the exit code."""
    args = arguments()
    process.unwind_on_signals()
    cases = Cases()
    try:
        with tempfile.TemporaryDirectory(prefix="inrush-completions-") as temp:
            folder = Path(temp)
            for key in KEYS:
                place = folder / "root" / "lab" / key
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(b"x")
            (folder / "root" / "other").mkdir()
            words = ["--root", folder / "root", "--access-key", ACCESS_KEY,
                     "--secret-key", SECRET]
            with origin.serving(args.origin, words, folder) as url:
                env = environment(url, folder)
                program = args.inrush.resolve()
                for shell in ("bash", "zsh"):
                    drive(shell, program, folder, env, cases)
                offer(program, folder, env, cases)
    except LabError as error:
        say(f"the lab cannot work: {error}")
        return 2
    say(f"{cases.passed} passed, {cases.failed} failed")
    return 1 if cases.failed else 0


if __name__ == "__main__":
    sys.exit(main())
