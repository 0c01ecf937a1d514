"""A certificate authority of the lab's own, and a server's certificate from it, made by `openssl`.

Both live as long as the folder they are in. Two authorities have the same name and different keys,
so that one that is not the server's differs by its key alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.install import system_program
from lab.process import must

NAME = "/CN=inrush lab authority"
DAYS = "2"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
OPENSSL_SECONDS = 20.0


@dataclass(frozen=True)
class Authority:
    """Whom clients are to believe, and what the server shows them."""

    bundle: Path
    """The authority's certificate."""
    certificate: Path
    """The server's certificate."""
    key: Path
    """The server's key."""


def make(folder: Path, hosts: Sequence[str]) -> Authority:
    """A new authority, and a server's certificate for loopback and for `hosts`."""
    openssl = system_program("openssl")
    folder.mkdir(parents=True)
    bundle, authority_key = folder / "authority.pem", folder / "authority.key"
    must([openssl, "req", "-x509", *KEY, "-keyout", authority_key, "-out", bundle, "-days", DAYS,
          "-subj", NAME, "-addext", "keyUsage=critical,keyCertSign,cRLSign"],
         seconds=OPENSSL_SECONDS)
    certificate, key = folder / "server.pem", folder / "server.key"
    request, extensions = folder / "server.csr", folder / "extensions"
    must([openssl, "req", *KEY, "-keyout", key, "-out", request, "-subj", "/CN=inrush lab server"],
         seconds=OPENSSL_SECONDS)
    names = ",".join(["IP:127.0.0.1", "DNS:localhost", *[f"DNS:{host}" for host in hosts]])
    extensions.write_text(f"subjectAltName={names}\nbasicConstraints=critical,CA:FALSE\n"
                          "keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n")
    must([openssl, "x509", "-req", "-in", request, "-CA", bundle, "-CAkey", authority_key,
          "-CAcreateserial", "-days", DAYS, "-out", certificate, "-extfile", extensions],
         seconds=OPENSSL_SECONDS)
    return Authority(bundle, certificate, key)


def make_self_signed(folder: Path) -> Authority:
    """A certificate that signed itself, for loopback, as everybody makes one: it is an authority's
    (CA:TRUE), the server's, and its own bundle."""
    openssl = system_program("openssl")
    folder.mkdir(parents=True)
    certificate, key = folder / "server.pem", folder / "server.key"
    must([openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out",
          certificate, "-days", "1", "-subj", "/CN=localhost", "-addext",
          "subjectAltName=DNS:localhost,IP:127.0.0.1"], seconds=OPENSSL_SECONDS)
    return Authority(certificate, certificate, key)
