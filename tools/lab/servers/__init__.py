"""Servers, networks and file systems of this machine alone, each as long as it is entered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Loopback:
    """A running server of another project, over plain HTTP."""

    VIRTUAL_DOMAIN: ClassVar[str]
    """Of its buckets, which are subdomains; it needs resolving."""

    port: int

    @property
    def url(self) -> str:
        """The endpoint in path style."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def virtual_url(self) -> str:
        """The endpoint in virtual-host style."""
        return f"http://{self.VIRTUAL_DOMAIN}:{self.port}"
