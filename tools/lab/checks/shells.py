"""Interactive shells at a terminal of their own: what a word becomes when TAB is pressed.

bash and zsh read keys as they do for people; a key of their own makes them print the line as it
then stands. fish says by itself what it would offer (`complete -C`).
"""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from lab.install import system_program
from lab.process import LabError

ANSWER_SECONDS = 30.0
BEGIN, END = "<<", ">>"

# Ctrl-X Ctrl-P prints the line between the two marks; TAB completes without asking or listing.
BASH_SETUP = r"""
PS1='ready> '; bind 'set bell-style none'; bind 'set enable-bracketed-paste off'
bind 'set page-completions off'; bind 'set completion-query-items 0'
__show_line() { printf '\n<''<%s>''>\n' "$READLINE_LINE"; }
bind -x '"\C-x\C-p": __show_line'
source COMPLETIONS
printf 'be''gun\n'
"""
ZSH_SETUP = r"""
PS1='ready> '; unsetopt prompt_cr beep; autoload -Uz compinit; compinit -D -u
setopt no_list_ambiguous
__show_line() { zle -I; print -r -- "<""<$BUFFER>"">" }
zle -N __show_line; bindkey -e; bindkey '^X^P' __show_line
source COMPLETIONS
print 'be''gun'
"""


class Terminal:
    """A shell at a terminal, in a process group of its own; leave it as a context."""

    def __init__(self, shell: str, program: Path, folder: Path, env: Mapping[str, str]) -> None:
        self.shell = shell
        script = folder / f"completions.{shell}"
        script.write_bytes(subprocess.run([program, "completions", shell], check=True,
                                          capture_output=True, timeout=ANSWER_SECONDS).stdout)
        setup = folder / f"setup.{shell}"
        text = {"bash": BASH_SETUP, "zsh": ZSH_SETUP}[shell]
        setup.write_text(text.replace("COMPLETIONS", str(script)))
        words = {"bash": ["--noprofile", "--norc", "-i"], "zsh": ["-f", "-i"]}[shell]
        path = system_program(shell)
        full = {**env, "PATH": f"{program.parent}:{os.environ['PATH']}", "TERM": "dumb",
                "ZDOTDIR": str(folder), "COLUMNS": "500"}
        self.child, self.screen = pty.fork()
        if self.child == 0:
            os.execve(path, [shell, *words], full)
        self.seen = ""
        self.type(f"stty cols 500; source {setup}\n")
        self.wait_for("begun")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        os.close(self.screen)

    def type(self, keys: str) -> None:
        """Presses these keys."""
        os.write(self.screen, keys.encode())

    def wait_for(self, text: str) -> str:
        """Reads the screen until this text comes; what came up to there."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while text not in self.seen:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.screen], [], [], left)[0]:
                raise LabError(f"{self.shell} does not show {text!r}: {self.seen[-400:]!r}")
            self.seen += os.read(self.screen, 65536).decode(errors="replace")
        before, self.seen = self.seen.split(text, 1)
        return before

    def completed(self, line: str) -> str:
        """What the line becomes when TAB is pressed once behind it."""
        self.type(f"{line}\t\x18\x10")
        self.wait_for(BEGIN)
        found = self.wait_for(END)
        # To the end of the line, and all of it gone.
        self.type("\x05\x15")
        return found


def fish_offers(program: Path, folder: Path, env: Mapping[str, str], line: str) -> list[str]:
    """What fish offers for the last word of the line."""
    fish = system_program("fish")
    script = 'inrush completions fish | source; complete -C "$argv[1]"'
    full = {**env, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    run = subprocess.run([fish, "--no-config", "-c", script, line], env=full, check=True,
                         capture_output=True, timeout=ANSWER_SECONDS, text=True)
    return [found.split("\t")[0] for found in run.stdout.splitlines()]
