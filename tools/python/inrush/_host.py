"""One engine for all processes of a user on a host: its name, and how it is started.

The name is that of an abstract Unix socket (unix(7)): no file is left of it, whoever is killed, and
it is of one network namespace. It is made of what an engine depends on, so that only processes
share one that would have alike engines of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import operator
import os
import resource
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union

from . import _native

#: Clients that may be about to connect, at most.
BACKLOG = 1024
#: How long to wait until the process of an engine runs.
START_SECONDS = 60.0
#: In the environment of an engine: its options. Command lines are for all users to read.
OPTIONS = "INRUSH_HOST_OPTIONS"
#: Variables that an engine looks at: those of AWS, its own, and these.
_PREFIXES = ("AWS_", "INRUSH_", "SSL_CERT_")
_VARIABLES = {"HOME", "PATH", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
#: Those of them that are paths, and options that are.
_PATHS = ("AWS_CA_BUNDLE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
          "AWS_WEB_IDENTITY_TOKEN_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PATH_OPTIONS = ("ca_bundle", "sse_c_key_file")
#: What separates the processes of one container from those of another.
_NAMESPACES = ("ipc", "mnt", "net", "pid", "user")

#: Imports this package, and not another one that the interpreter would find.
_START = ("import importlib.util as util, sys; "
          "spec = util.spec_from_file_location('inrush', {!r}); "
          "sys.modules['inrush'] = module = util.module_from_spec(spec); "
          "spec.loader.exec_module(module); module._host.serve()")

#: Sockets that wait for clients until the process of an engine has them.
_listeners: set[socket.socket] = set()


def options_of(given: Mapping[str, Any]) -> str:
    """What starts an engine for clients with these options."""
    return json.dumps({name: value for name, value in given.items()
                       if name != "share" and value is not None and value is not False},
                      default=_plain, sort_keys=True)


def _plain(value: Any) -> Any:
    """An integer of NumPy, or a path of bytes. What is neither is refused as an option later."""
    try:
        return operator.index(value)
    except TypeError:
        return os.fsdecode(value) if isinstance(value, bytes) else str(value)


def name(options: str) -> bytes:
    """The name of the engine that this process would start."""
    variables = {variable: value for variable, value in os.environ.items()
                 if variable.startswith(_PREFIXES) or variable.upper() in _VARIABLES}
    variables.pop(OPTIONS, None)
    paths = [variables.get(path) for path in _PATHS]
    paths += [json.loads(options).get(path) for path in _PATH_OPTIONS]
    folder = ""
    if any(path and not os.path.isabs(path) for path in paths):
        with contextlib.suppress(OSError):
            folder = os.getcwd()
    namespaces = []
    for kind in _NAMESPACES:
        with contextlib.suppress(OSError):
            namespaces.append(os.readlink(f"/proc/self/ns/{kind}"))
    what = [_native.__version__, __file__, options, os.geteuid(), os.getegid(),
            sorted(os.getgroups()), folder, namespaces, sorted(variables.items())]
    # All users see the name. It is made of keys, too, of which their hash reveals nothing.
    return b"inrush/" + hashlib.sha256(json.dumps(what).encode()).hexdigest().encode()


def start(name: bytes, options: str) -> Union[bool, str]:
    """Starts the engine of this name; False if another process has the name already.

    Returns a text if this machine lets nobody start one: why.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return "this program is no interpreter that could be started (sys.executable)"
    package = str(Path(__file__).resolve().with_name("__init__.py"))
    words = [sys.executable, "-I", "-c", _START.format(package)]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, _waiting(listener):
            try:
                listener.bind(b"\0" + name)
            except OSError:
                return False
            listener.listen(BACKLOG)
            # The engine outlives this process: it gets nothing of it but the socket.
            with subprocess.Popen(words, stdin=listener.fileno(), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, start_new_session=True,
                                  env={**os.environ, OPTIONS: options}) as started:
                try:
                    code = started.wait(START_SECONDS)
                except BaseException:
                    started.kill()
                    raise
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot start it: {error}"
    return code == 0 or f"cannot start it: {sys.executable} ended with exit code {code}"


@contextlib.contextmanager
def _waiting(listener: socket.socket) -> Iterator[None]:
    """A child that is forked meanwhile does not keep it."""
    _listeners.add(listener)
    try:
        yield
    finally:
        _listeners.discard(listener)


def serve() -> None:
    """Is the engine: for who connects to the socket on standard input."""
    # Whoever has started it need not wait for it, and is not its parent any more.
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # As many as the host lets its processes have: those of the first client may be one of many.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    _native.Core(json.loads(os.environ.pop(OPTIONS))).serve()


def warn_alone(why: str) -> None:
    """Says that processes do not share an engine."""
    warnings.warn(f"each process has an engine of its own, since they cannot share one: {why}",
                  RuntimeWarning, stacklevel=3)


def _close_inherited() -> None:
    # As long as a copy is open the engine takes the parent for alive, or clients take the parent
    # for the engine.
    for descriptor in _native.inherited_sockets():
        with contextlib.suppress(OSError):
            os.close(descriptor)
    for listener in _listeners:
        listener.close()
    _listeners.clear()


os.register_at_fork(after_in_child=_close_inherited)
