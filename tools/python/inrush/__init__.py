"""inrush reads S3 at line rate: into memory, files and datasets.

`Client` is the way in; `default_client()` is one for the whole process. `python -m inrush` is the
program. Sizes and offsets are in bytes, times in seconds.
"""

from ._client import Client, Item, Range, Source, default_client
from ._errors import (
    Archived,
    Changed,
    Closed,
    ConnectionFailed,
    Credentials,
    Error,
    HostError,
    Integrity,
    Interrupted,
    InvalidRange,
    LocalIO,
    NoSpace,
    NotFound,
    ObjectsFailed,
    PermissionDenied,
    ServerError,
    Throttled,
    Timeout,
    Usage,
)
from ._file import File
from ._native import ObjectInfo, Prefix, ReadResult, __version__

__all__ = [
    "Archived",
    "Changed",
    "Client",
    "Closed",
    "ConnectionFailed",
    "Credentials",
    "Error",
    "File",
    "HostError",
    "Integrity",
    "Interrupted",
    "InvalidRange",
    "Item",
    "LocalIO",
    "NoSpace",
    "NotFound",
    "ObjectInfo",
    "ObjectsFailed",
    "PermissionDenied",
    "Prefix",
    "Range",
    "ReadResult",
    "ServerError",
    "Source",
    "Throttled",
    "Timeout",
    "Usage",
    "__version__",
    "default_client",
]
