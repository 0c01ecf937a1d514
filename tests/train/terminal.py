"""Runs `inrush train` on a terminal, types, and says what it saw: arguments are the program, the
endpoint, the base folder, and the keys."""

import os
import pty
import select
import signal
import sys
import time

PROGRAM, ENDPOINT, BASE, ACCESS_KEY, SECRET = sys.argv[1:]
SECONDS = 30

# Reads a line, counts Ctrl-C, and ends when it has got one more line.
COMMAND = r"""
import os, signal, sys
count = 0
def say(*words):
    # Not by print: a signal may come in the middle of it.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())
def interrupted(*_):
    global count
    count += 1
    say("interrupted", count)
signal.signal(signal.SIGINT, interrupted)
say("ready")
say("read", sys.stdin.readline().strip())
say("again", sys.stdin.readline().strip(), count)
sys.exit(6)
"""


def main():
    pid, terminal = pty.fork()
    if pid == 0:
        env = {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": "/nonexistent",
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        }
        words = [PROGRAM, "train", "--base-dir", BASE, "--endpoint-url", ENDPOINT]
        words += ["--region", "us-east-1", "--quiet", "--channel", "t=s3://lab/a,mode=Pipe"]
        os.execve(PROGRAM, words + ["--", sys.executable, "-c", COMMAND], env)
    seen = ""

    def until(text):
        nonlocal seen
        end = time.monotonic() + SECONDS
        while text not in seen:
            ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise SystemExit(f"no {text!r} in {seen!r}")
            try:
                seen += os.read(terminal, 4096).decode()
            except OSError:
                raise SystemExit(f"it ended without {text!r}: {seen!r}")

    until("ready")
    os.write(terminal, b"typed\n")
    until("read typed")
    os.write(terminal, b"\x03")
    until("interrupted 1")
    # Ctrl-Z stops the command, and inrush with it: whoever started it sees that.
    os.write(terminal, b"\x1a")
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        raise SystemExit(f"it did not stop but ended: {status} {seen!r}")
    os.kill(pid, signal.SIGCONT)
    os.write(terminal, b"more\n")
    until("again more 1")
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != 6:
        raise SystemExit(f"{status} {seen!r}")


main()
