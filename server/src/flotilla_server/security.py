"""Security settings of brokers and managers: authentication, secret, certificates.

By default authentication is on, unless the server listens on a loopback address: a forgotten setting must not open a
server to a network.
"""

from pathlib import Path
from typing import Protocol

from flotilla_server.settings import SettingsInvalid, is_loopback, require

ON, OFF, AUTO = "on", "off", "auto"
AUTH_HELP = "on: require a token; off: allow everything without a token; auto: on unless host is a loopback address"
SECRET_BYTES_MIN = 16


class SecuritySettings(Protocol):
    """The security settings of a server."""

    @property
    def host(self) -> str: ...  # noqa: D102 - see the settings
    @property
    def auth(self) -> str: ...  # noqa: D102
    @property
    def secret(self) -> bytes | None: ...  # noqa: D102
    @property
    def tls_cert(self) -> Path | None: ...  # noqa: D102
    @property
    def tls_key(self) -> Path | None: ...  # noqa: D102


def is_auth_on(settings: SecuritySettings) -> bool:
    """Whether requests need a token."""
    return settings.auth == ON or (settings.auth == AUTO and not is_loopback(settings.host))


def check_security(settings: SecuritySettings) -> None:
    """Validate the combination of settings; raises SettingsInvalid."""
    require(settings.auth in {ON, OFF, AUTO}, "auth", "on, off or auto")
    require((settings.tls_cert is None) == (settings.tls_key is None), "tls_cert and tls_key", "set together")
    if settings.secret is not None:
        require(len(settings.secret) >= SECRET_BYTES_MIN, "secret", f"at least {SECRET_BYTES_MIN} bytes long")
    elif is_auth_on(settings):
        raise SettingsInvalid(
            "secret is required, because auth is on: set FLOTILLA_SECRET or secret_file to the secret that all servers "
            "share, or set auth to off to allow everything without a token"
        )
