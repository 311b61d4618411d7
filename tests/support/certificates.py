"""Certificates for tests, in files as servers want them: made anew each time, by an authority of the test's own."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Files:
    """A certificate, its key, and who signed it."""

    cert: Path
    key: Path
    ca: Path

    @property
    def flags(self) -> list[str]:
        """What a server is told."""
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key), "--tls-ca", str(self.ca)]

    @property
    def client(self) -> ssl.SSLContext:
        """A context of somebody who trusts the authority."""
        return ssl.create_default_context(cafile=self.ca)


def make_authority() -> trustme.CA:
    """Have an authority."""
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


def write(folder: Path, authority: trustme.CA, *hosts: str) -> Files:
    """Write a new certificate for some hosts; one that is there is replaced, each file at once."""
    folder.mkdir(parents=True, exist_ok=True)
    made = authority.issue_cert(*(hosts or ("127.0.0.1", "localhost")), key_type=trustme.KeyType.ECDSA)
    files = Files(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
    put(files.cert, b"".join(blob.bytes() for blob in made.cert_chain_pems))
    put(files.key, made.private_key_pem.bytes())
    put(files.ca, authority.cert_pem.bytes())
    return files


def put(file: Path, data: bytes) -> None:
    """Replace a file at once."""
    fresh = file.with_suffix(".new")
    fresh.write_bytes(data)
    fresh.replace(file)
