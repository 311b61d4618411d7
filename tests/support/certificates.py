"""Certificate files for tests, issued by a new CA."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Files:
    """A certificate, its key and its CA."""

    cert: Path
    key: Path
    ca: Path

    @property
    def flags(self) -> list[str]:
        """Flags of a server."""
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key), "--tls-ca", str(self.ca)]

    @property
    def client(self) -> ssl.SSLContext:
        """TLS context of a client that trusts the CA."""
        return ssl.create_default_context(cafile=self.ca)


def make_authority() -> trustme.CA:
    """Create a CA."""
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


def write(folder: Path, authority: trustme.CA, *hosts: str) -> Files:
    """Write a new certificate for some hosts, replacing each file atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    made = authority.issue_cert(*(hosts or ("127.0.0.1", "localhost")), key_type=trustme.KeyType.ECDSA)
    files = Files(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
    put(files.cert, b"".join(blob.bytes() for blob in made.cert_chain_pems))
    put(files.key, made.private_key_pem.bytes())
    put(files.ca, authority.cert_pem.bytes())
    return files


def put(file: Path, data: bytes) -> None:
    """Replace a file atomically."""
    fresh = file.with_suffix(".new")
    fresh.write_bytes(data)
    fresh.replace(file)
