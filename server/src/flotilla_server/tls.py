"""TLS of a server: its certificate, and the CAs with which it verifies other servers.

All files are read before the server starts, so that an invalid file is an error of settings. Afterwards they are
checked every second. A new certificate is used for new connections; open connections keep the old one. An invalid
pair, for example a half-written one, is logged and ignored. Added CAs are trusted at once; removed ones until the next
start.

Sessions are never resumed: a resumed session would not use the new certificate.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from flotilla_server.settings import SettingsInvalid

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0

_Version = tuple[tuple[int, int, int] | None, ...]


class TlsSettings(Protocol):
    """The TLS settings of a server."""

    @property
    def tls_cert(self) -> Path | None: ...  # noqa: D102 - see the settings
    @property
    def tls_key(self) -> Path | None: ...  # noqa: D102
    @property
    def tls_ca(self) -> Path | None: ...  # noqa: D102


class Tls:
    """The TLS contexts of a server: `server` is None without a certificate, `client` is None without a CA file."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read all files; raises SettingsInvalid."""
        self.server: ssl.SSLContext | None = None
        self.client: ssl.SSLContext | None = None
        self._files: list[_WatchedFiles] = []
        if settings.tls_cert is not None and settings.tls_key is not None:
            pair = _WatchedFiles(settings.tls_cert, settings.tls_key)
            certificate = Certificate(settings.tls_cert, settings.tls_key)
            self.server, pair.load = certificate.context, certificate.load
            self._files.append(pair)
        if settings.tls_ca is not None:
            ca, authorities = settings.tls_ca, _WatchedFiles(settings.tls_ca)
            trust = self.client = make_client_context(ca)
            authorities.load = lambda: _trust(trust, ca)
            self._files.append(authorities)

    def reload_changed(self) -> None:
        """Reload files that have changed."""
        for files in self._files:
            files.reload_changed()

    async def watch(self) -> None:
        """Reload changed files every second, until it is cancelled."""
        while self._files:
            await asyncio.sleep(CHECK_INTERVAL_S)
            self.reload_changed()


class Certificate:
    """A certificate and its key. `context` stays the same; new handshakes use the last loaded pair."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Load the pair; raises SettingsInvalid."""
        self._cert = cert
        self._key = key
        self._current = self._read()
        self.context = self._read()
        self.context.sni_callback = self._choose

    def load(self) -> None:
        """Reload the pair; raises SettingsInvalid and changes nothing then."""
        self._current = self._read()

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        """Set the current context for a handshake, with or without SNI."""
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
        except (OSError, ValueError) as error:  # includes SSLError
            text = f"tls_cert {self._cert} and tls_key {self._key} are not a valid pair: {_describe(error)}"
            raise SettingsInvalid(text) from error
        return context


def make_client_context(ca: Path | None) -> ssl.SSLContext:
    """Create a context that trusts the CAs of a file, or the system CAs; raises SettingsInvalid."""
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
        raise SettingsInvalid(f"tls_ca {ca} is not a valid CA bundle: {_describe(error)}") from error


def _require_readable(name: str, file: Path) -> None:
    try:
        file.read_bytes()
    except OSError as error:
        raise SettingsInvalid(f"{name} {file} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    """Reject an encrypted key, instead of a prompt on the terminal."""
    raise ValueError("the key is encrypted: use a key without a password")


def _describe(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        known = {
            "KEY_VALUES_MISMATCH": "the key belongs to another certificate",
            "NO_START_LINE": "one file is not PEM",
        }
        return known.get(error.reason or "", str(error))
    return str(error)


class _WatchedFiles:
    """Files that are loaded together when one changes. Create it before the first load."""

    def __init__(self, *files: Path) -> None:
        self._files = files
        self._seen = self._stat()
        self.load: Callable[[], None] = lambda: None

    def reload_changed(self) -> None:
        """Load the files if one has changed."""
        found = self._stat()
        if found == self._seen:
            return
        self._seen = found
        names = " and ".join(map(str, self._files))
        try:
            self.load()
        except SettingsInvalid as error:
            logger.error("certificate reload failed, keeping the previous one files=%r error=%r", names, str(error))  # noqa: TRY400 - expected
        else:
            logger.info("certificate reloaded for new connections files=%r", names)

    def _stat(self) -> _Version:
        return tuple(_stat(file) for file in self._files)


def _stat(file: Path) -> tuple[int, int, int] | None:
    """Return a fingerprint of a file's version; None if it does not exist."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
