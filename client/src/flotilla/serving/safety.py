"""The settings that say who may do what: whether callers are checked, by which secret, and with which certificates.

Managers and brokers have them in common. By default, callers are checked unless a server is reached from this machine
alone: nobody opens a queue to a network by forgetting a setting.
"""

from pathlib import Path
from typing import Protocol

from flotilla.serving.settings import SettingsInvalid, is_loopback, require

ON, OFF, AUTO = "on", "off", "auto"
AUTH_HELP = "on: callers need a token; off: anybody may do anything; auto: on unless host is the loopback"
SECRET_BYTES_MIN = 16


class SafetySettings(Protocol):
    """What the settings of a server have of this."""

    @property
    def host(self) -> str: ...  # noqa: D102 - as the settings say
    @property
    def auth(self) -> str: ...  # noqa: D102
    @property
    def secret(self) -> bytes | None: ...  # noqa: D102
    @property
    def tls_cert(self) -> Path | None: ...  # noqa: D102
    @property
    def tls_key(self) -> Path | None: ...  # noqa: D102


def is_auth_on(settings: SafetySettings) -> bool:
    """Tell whether callers have to say who they are."""
    return settings.auth == ON or (settings.auth == AUTO and not is_loopback(settings.host))


def check_safety(settings: SafetySettings) -> None:
    """Check what belongs together; raises SettingsInvalid."""
    require(settings.auth in {ON, OFF, AUTO}, "auth", "on, off or auto")
    require((settings.tls_cert is None) == (settings.tls_key is None), "tls_cert and tls_key", "given together")
    if settings.secret is not None:
        require(len(settings.secret) >= SECRET_BYTES_MIN, "secret", f"at least {SECRET_BYTES_MIN} bytes long")
    elif is_auth_on(settings):
        raise SettingsInvalid(
            "secret is missing, and callers are checked: set FLOTILLA_SECRET or secret_file to what all servers share, "
            "or, if anybody who reaches this server may do anything, set auth to off"
        )
