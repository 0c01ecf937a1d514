"""Exceptions. All are OSErrors, and say what failed, where, and what to do."""

from __future__ import annotations

import copyreg
import errno
import re
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Optional, cast


class Error(OSError):
    """Something failed. `str()` of it is what the command prints, with the names of
    arguments instead of options.

    Attributes: `kind` (the `error_kind` of the command's JSON, such as "not_found"), `uri` (the
    object, or None; `filename` is the same), `bucket` and `key` (its parts, or None), `attempts`
    (tries in a row that brought nothing, or None), `request_id` (the server's, or None), and those
    of `Client.get` and `Client.sync`: `report` (their JSON, or None) and `errors` (the error of
    each failed object, with its own `uri` and `kind`: the first 1,000).

    A `DataLoader` of PyTorch, and the nodes of torchdata, hand on the class and the text of a
    worker's error, and nothing else. So where torch is imported, the class of each error that has
    such attributes is a subclass of its own, which has them, too (`attributes`).
    """

    kind: str = "internal"
    attributes: ClassVar[Mapping[str, Any]] = {}
    default_errno: int = errno.EIO

    def __init__(
        self,
        message: str = "",
        *,
        kind: Optional[str] = None,
        uri: Optional[str] = None,
        attempts: Optional[int] = None,
        request_id: Optional[str] = None,
    ) -> None:
        super().__init__(self.default_errno, message)
        values = {"kind": kind, "uri": uri, "attempts": attempts, "request_id": request_id}
        given = {name: value for name, value in values.items() if value is not None}
        known = {**self.attributes, **given}
        self.kind = known.get("kind", self.kind)
        self.message = message
        self.uri: Optional[str] = known.get("uri")
        self.filename = self.uri
        self.attempts: Optional[int] = known.get("attempts")
        self.request_id: Optional[str] = known.get("request_id")
        self.report: Optional[dict[str, Any]] = None
        self.errors: tuple[Error, ...] = ()

    @property
    def bucket(self) -> Optional[str]:
        """The bucket of the object, or None."""
        return None if self.uri is None else self.uri.removeprefix("s3://").partition("/")[0]

    @property
    def key(self) -> Optional[str]:
        """The key of the object, or None."""
        if self.uri is None:
            return None
        return self.uri.removeprefix("s3://").partition("/")[2] or None

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.kind, self.message, self.uri, self.attempts, self.request_id)
        return _restored, values, {"report": self.report, "errors": self.errors}


class NotFound(Error, FileNotFoundError):
    """The bucket or the object does not exist."""

    kind = "not_found"
    default_errno = errno.ENOENT


class PermissionDenied(Error, PermissionError):
    """The credentials do not permit the request."""

    kind = "permission_denied"
    default_errno = errno.EACCES


class Credentials(Error, PermissionError):
    """There are no credentials, or they are wrong or have expired."""

    kind = "credentials"
    default_errno = errno.EACCES


class Throttled(Error):
    """The server asked for fewer requests for longer than was waited."""

    kind = "throttled"
    default_errno = errno.EBUSY


class Changed(Error):
    """The object was replaced since it was listed, or while it was read."""

    kind = "changed"
    default_errno = errno.ESTALE


class Archived(Error):
    """The object is in an archive, and must be restored first."""

    kind = "archived"


class Integrity(Error):
    """Data is not what S3 stores."""

    kind = "integrity"


class ConnectionFailed(Error, ConnectionError):
    """The endpoint cannot be reached, or connections to it break."""

    kind = "network"
    default_errno = errno.ECONNABORTED


class ServerError(Error):
    """The server fails, or answers what it should not."""

    kind = "server"


class Timeout(Error, TimeoutError):
    """It took longer than was allowed."""

    kind = "deadline"
    default_errno = errno.ETIMEDOUT


class Interrupted(Error):
    """It was cancelled."""

    kind = "interrupted"
    default_errno = errno.ECANCELED


class LocalIO(Error):
    """A local file or folder cannot be read or written."""

    kind = "local_io"


class NoSpace(LocalIO):
    """The destination is full, or too small."""

    kind = "no_space"
    default_errno = errno.ENOSPC


class HostError(Error):
    """This machine lacks a resource: memory, open files, threads, io_uring."""

    kind = "host"
    default_errno = errno.ENOMEM


class Usage(Error, ValueError):
    """An address or an option is wrong."""

    kind = "usage"
    default_errno = errno.EINVAL


class InvalidRange(Usage):
    """A range that the object does not have, or a buffer that is too small for it."""

    kind = "invalid_range"


class Closed(Error, ValueError):
    """The client or the pass over a data set was closed, or an iterator has failed before."""

    kind = "closed"
    default_errno = errno.EBADF


class ObjectsFailed(Error):
    """Several objects failed, for reasons that differ: `errors` has the error of each."""

    kind = "objects_failed"


class _WithAttributes(type):
    """The class of a class of one error, which has the attributes of this error."""


#: How many of these classes are kept to be used again, of each class of errors.
CLASSES_KEPT = 64
_kept: dict[type[Error], deque[Any]] = {}
#: References to a class that is new, in `_class_with`.
_references = 0


def _class_with(of: type[Error], attributes: Mapping[str, Any]) -> type[Error]:
    """A subclass with the name of `of`, whose instances have these attributes by default.

    A class refers to itself: it is gone when garbage is collected, which some programs never do.
    So one to which nobody else refers any more is used again.
    """
    global _references
    kept = _kept.setdefault(of, deque(maxlen=CLASSES_KEPT))
    made: Any = None
    for _ in range(len(kept)):
        try:
            # No other thread has it then.
            made = kept.popleft()
        except IndexError:
            break
        if sys.getrefcount(made) <= _references:
            made.attributes = attributes
            break
        kept.append(made)
        made = None
    if made is None:
        body = {"attributes": attributes, "__module__": of.__module__,
                "__qualname__": of.__qualname__, "__doc__": of.__doc__}
        made = _WithAttributes(of.__name__, (of,), body)
        _references = _references or sys.getrefcount(made)
    kept.append(made)
    return cast(type[Error], made)


def _reduce_class(of: Any) -> tuple[Any, ...]:
    return _class_with, (of.__base__, of.attributes)


# PyTorch pickles the class of an error: by its name it would be found without the attributes.
copyreg.pickle(_WithAttributes, _reduce_class)

_CLASSES: dict[str, type[Error]] = {
    of.kind: of
    for of in (
        NotFound, PermissionDenied, Credentials, Throttled, Changed, Archived, Integrity,
        ConnectionFailed, ServerError, Timeout, Interrupted, LocalIO, NoSpace, HostError, Usage,
        InvalidRange, Closed, ObjectsFailed,
    )
}  # fmt: skip


# An option, as messages of the command name it; those of other programs stay as they are.
_OPTION = re.compile(r"(?<![^\s(`'\"])(?<!login )--(?!cap-add)([a-z][a-z-]*[a-z])")


def _named_as_arguments(message: str, uri: Optional[str]) -> str:
    """The message with `no_sign_request` for `--no-sign-request`; the address stays as it is."""
    def argument(option: re.Match[str]) -> str:
        return option[1].replace("-", "_")

    parts = [message] if uri is None else message.split(uri)
    return (uri or "").join(_OPTION.sub(argument, part) for part in parts)


def _restored(
    kind: str,
    message: str,
    uri: Optional[str],
    attempts: Optional[int],
    request_id: Optional[str],
) -> Error:
    of = _CLASSES.get(kind, Error)
    return of(message, kind=kind, uri=uri, attempts=attempts, request_id=request_id)


def from_native(
    kind: str,
    message: str,
    uri: Optional[str] = None,
    attempts: Optional[int] = None,
    request_id: Optional[str] = None,
) -> Error:
    """The exception of this kind, of a message of the command or the library."""
    message = _named_as_arguments(message, uri)
    if uri is None or "torch" not in sys.modules:
        return _restored(kind, message, uri, attempts, request_id)
    attributes: dict[str, Any] = {
        "kind": kind, "uri": uri, "attempts": attempts, "request_id": request_id}
    return _class_with(_CLASSES.get(kind, Error), attributes)(message)
