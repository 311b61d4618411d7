"""Settings of the transport between brokers, checked when they are made."""

import ssl
from dataclasses import dataclass

_MIB = 1 << 20
_FRAME_BYTES_MAX = 1 << 30  # far below the 4 GiB that a length field can say
_PINGS_PER_SILENCE = 2  # a single ping that comes late must not end a connection


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """Settings of one broker's connections. The defaults suit brokers in one data centre."""

    frame_bytes_max: int = 32 * _MIB  # of one frame's body
    write_bytes_high: int = 4 * _MIB  # more than this waits to be sent: the peer is not writable
    write_bytes_max: int = 64 * _MIB  # more than this never waits: frames are refused
    connections_max: int = 1024  # accepted ones, in any state
    unauthenticated_max: int = 64  # accepted ones that have not proven anything yet
    handshake_s: float = 5.0  # from the dial or the accept to the end of the handshake
    ping_s: float = 2.0  # has to suit the others' silence_s: brokers share these settings
    silence_s: float = 6.0  # a connection is closed after hearing nothing for this long
    backoff_s_min: float = 0.05
    backoff_s_max: float = 2.0
    settled_s: float = 10.0  # a connection that lived this long ends a row of failures

    def __post_init__(self) -> None:
        _require(1 <= self.frame_bytes_max <= _FRAME_BYTES_MAX, "frame_bytes_max", f"from 1 to {_FRAME_BYTES_MAX}")
        _require(self.write_bytes_high >= 1, "write_bytes_high", "at least 1")
        least = self.write_bytes_high + self.frame_bytes_max
        _require(
            self.write_bytes_max >= least,
            "write_bytes_max",
            f"at least {least}: the mark and one of the largest frames",
        )
        _require(self.connections_max >= 1, "connections_max", "at least 1")
        _require(self.unauthenticated_max >= 1, "unauthenticated_max", "at least 1")
        _require(self.handshake_s > 0, "handshake_s", "more than 0")
        _require(self.ping_s > 0, "ping_s", "more than 0")
        silence = _PINGS_PER_SILENCE * self.ping_s
        _require(self.silence_s >= silence, "silence_s", f"at least {silence}: {_PINGS_PER_SILENCE} pings")
        _require(self.backoff_s_min > 0, "backoff_s_min", "more than 0")
        _require(self.backoff_s_max >= self.backoff_s_min, "backoff_s_max", "at least backoff_s_min")
        _require(self.settled_s >= 0, "settled_s", "at least 0")


@dataclass(frozen=True, slots=True)
class PeerTls:
    """Mutual TLS: one context for the connections accepted, one for those dialed. Both must demand a certificate."""

    server: ssl.SSLContext
    client: ssl.SSLContext

    def __post_init__(self) -> None:
        for name in ("server", "client"):
            mode = getattr(self, name).verify_mode
            _require(mode is ssl.CERT_REQUIRED, name, "a context that demands a certificate (CERT_REQUIRED)")


def _require(holds: bool, name: str, rule: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {rule}")
