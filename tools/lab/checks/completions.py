"""Profiles, buckets and keys that bash, zsh and fish offer when TAB is pressed.

Each shell loads the script of `inrush completions` as people do. What the line of bash and of zsh,
at a terminal of its own, holds behind one TAB is read by that shell again, and must be the very
key, as the program reads it; fish says what it offers. It installs what is missing (as root), and
takes less than a minute.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab import dataset
from lab.checks import shells
from lab.driver import Lab

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


def check(lab: Lab, shell: str, typed: str, found: str, expected: str) -> None:
    """One line for a case."""
    lab.report(f"{shell:4} {typed}",
               None if found == expected else f"{found!r}, expected {expected!r}")


def drive(lab: Lab, shell: str, env: dict[str, str]) -> None:
    """bash and zsh: the last word of the line behind one TAB."""
    # What the shell makes of the line is what the program would get.
    cases = [*((typed, escaped(meant)) for typed, meant in TYPED), ("--profile tr", "training"),
             ("--profile te", "testing"), ("--profile=tr", "--profile=training")]
    with shells.Terminal(shell, lab.inrush, lab.temp, env) as terminal:
        for typed, meant in cases:
            words = words_of(shell, terminal.completed(f"inrush ls {typed}"))
            check(lab, shell, typed, words[-1] if words else "", meant)


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


def run(lab: Lab) -> None:
    """Every word in every shell."""
    root = lab.folder("root")
    dataset.write_all(root / "lab", dict.fromkeys(KEYS, b"x"))
    (root / "other").mkdir()
    url = lab.serve("--root", root, "--access-key", ACCESS_KEY, "--secret-key", SECRET)
    env = environment(url, lab.temp)
    for shell in ("bash", "zsh"):
        drive(lab, shell, env)
    # fish says what it offers, and itself reads a star in the word as any characters.
    cases = [(typed, escaped(meant)) for typed, meant in TYPED if typed != "s3://lab/star\\*"]
    for typed, meant in [*cases, ("--profile tr", "training"),
                         ("--profile=te", "--profile=testing")]:
        found = shells.fish_offers(lab.inrush, lab.temp, env, f"inrush ls {typed}")
        check(lab, "fish", typed, "\n".join(found), meant)
