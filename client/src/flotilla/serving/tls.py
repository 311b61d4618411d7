"""TLS of a server: the certificate that it shows, and whom it trusts when it asks other servers.

Everything is read before the server starts, so that a file that cannot be used is an error of settings. From then on
the files are looked at every second. A certificate that was replaced is used for new connections, and those that are
open go on with the old one; a pair that cannot be used, perhaps because half of it is written, is said in the log and
changes nothing. Authorities that were added are trusted at once; one that was taken out of the file is trusted until
the next start.

Sessions are never resumed: a client that resumes one is shown no certificate, and would not see the new one.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from flotilla.serving.settings import SettingsInvalid

logger = logging.getLogger(__name__)

LOOK_S = 1.0

_Look = tuple[tuple[int, int, int] | None, ...]


class TlsSettings(Protocol):
    """What the settings of a server have of this."""

    @property
    def tls_cert(self) -> Path | None: ...  # noqa: D102 - as the settings say
    @property
    def tls_key(self) -> Path | None: ...  # noqa: D102
    @property
    def tls_ca(self) -> Path | None: ...  # noqa: D102


class Tls:
    """The contexts of a server: `server` is None without a certificate, `client` without authorities of its own."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read all files; raises SettingsInvalid."""
        self.server: ssl.SSLContext | None = None
        self.client: ssl.SSLContext | None = None
        self._files: list[_Files] = []
        if settings.tls_cert is not None and settings.tls_key is not None:
            pair = _Files(settings.tls_cert, settings.tls_key)
            certificate = Certificate(settings.tls_cert, settings.tls_key)
            self.server, pair.load = certificate.context, certificate.load
            self._files.append(pair)
        if settings.tls_ca is not None:
            ca, authorities = settings.tls_ca, _Files(settings.tls_ca)
            trust = self.client = make_client_context(ca)
            authorities.load = lambda: _trust(trust, ca)
            self._files.append(authorities)

    def look(self) -> None:
        """Read files that have changed since the last look."""
        for files in self._files:
            files.look()

    async def follow(self) -> None:
        """Look every second, until it is cancelled."""
        while self._files:
            await asyncio.sleep(LOOK_S)
            self.look()


class Certificate:
    """A certificate and its key. `context` stays the same; handshakes on it use the pair that was loaded last."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Load the pair; raises SettingsInvalid."""
        self._cert = cert
        self._key = key
        self._current = self._read()
        self.context = self._read()
        self.context.sni_callback = self._choose

    def load(self) -> None:
        """Load the pair again; raises SettingsInvalid, and changes nothing then."""
        self._current = self._read()

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        """Begin a handshake, whether the client says whom it wants to talk to or not."""
        connection.context = self._current

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        context.set_alpn_protocols(["http/1.1"])
        for name, file in (("tls_cert", self._cert), ("tls_key", self._key)):
            _require_readable(name, file)
        try:
            context.load_cert_chain(self._cert, self._key, password=_no_password)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            text = f"tls_cert {self._cert} and tls_key {self._key} cannot be used together: {_describe(error)}"
            raise SettingsInvalid(text) from error
        return context


def make_client_context(ca: Path | None) -> ssl.SSLContext:
    """Trust the authorities of a file, or those that this machine trusts; raises SettingsInvalid."""
    if ca is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _trust(context, ca)
    return context


def _trust(context: ssl.SSLContext, ca: Path) -> None:
    _require_readable("tls_ca", ca)
    try:
        context.load_verify_locations(ca)
    except (OSError, ValueError) as error:
        raise SettingsInvalid(f"tls_ca {ca} cannot be used: {_describe(error)}") from error


def _require_readable(name: str, file: Path) -> None:
    try:
        file.read_bytes()
    except OSError as error:
        raise SettingsInvalid(f"{name} {file} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    """Refuse a key with a password, instead of asking for it on the terminal."""
    raise ValueError("the key has a password; give one without")


def _describe(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        known = {"KEY_VALUES_MISMATCH": "the key belongs to another certificate", "NO_START_LINE": "one is not PEM"}
        return known.get(error.reason or "", str(error))
    return str(error)


class _Files:
    """Files that belong together, and what is done when one of them has changed. Made before they are first read."""

    def __init__(self, *files: Path) -> None:
        self._files = files
        self._seen = self._stat()
        self.load: Callable[[], None] = lambda: None

    def look(self) -> None:
        """Load what has changed."""
        found = self._stat()
        if found == self._seen:
            return
        self._seen = found
        names = " and ".join(map(str, self._files))
        try:
            self.load()
        except SettingsInvalid as error:
            logger.error("%s changed, and what was read before stays in use: %s", names, error)  # noqa: TRY400 - the text says all
        else:
            logger.info("%s changed; new connections use it", names)

    def _stat(self) -> _Look:
        return tuple(_stat(file) for file in self._files)


def _stat(file: Path) -> tuple[int, int, int] | None:
    """Tell one version of a file from the next; None if there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
