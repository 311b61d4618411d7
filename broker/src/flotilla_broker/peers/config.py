"""Settings of the transport between brokers, with validation."""

import ssl
from dataclasses import dataclass

_MIB = 1 << 20
_FRAME_BYTES_MAX = 1 << 30  # well below the 4 GiB of the length field
_PINGS_PER_SILENCE = 2  # one late ping must not close a connection


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """Settings of one broker's connections. The defaults suit brokers in one data centre."""

    frame_bytes_max: int = 32 * _MIB  # of one frame's body
    write_bytes_high: int = 4 * _MIB  # queued bytes above which the peer is not writable
    write_bytes_max: int = 64 * _MIB  # maximum queued bytes: more frames are rejected
    connections_max: int = 1024  # accepted connections in any state
    unauthenticated_max: int = 64  # accepted connections before the end of the handshake
    handshake_s: float = 5.0  # timeout from dial or accept to the end of the handshake
    ping_s: float = 2.0  # must match silence_s of the other brokers
    silence_s: float = 6.0  # idle timeout of a connection
    backoff_s_min: float = 0.05
    backoff_s_max: float = 2.0
    settled_s: float = 10.0  # a connection that lasted this long resets the backoff

    def __post_init__(self) -> None:
        _require(1 <= self.frame_bytes_max <= _FRAME_BYTES_MAX, "frame_bytes_max", f"from 1 to {_FRAME_BYTES_MAX}")
        _require(self.write_bytes_high >= 1, "write_bytes_high", "at least 1")
        least = self.write_bytes_high + self.frame_bytes_max
        _require(
            self.write_bytes_max >= least,
            "write_bytes_max",
            f"at least {least} (write_bytes_high + frame_bytes_max)",
        )
        _require(self.connections_max >= 1, "connections_max", "at least 1")
        _require(self.unauthenticated_max >= 1, "unauthenticated_max", "at least 1")
        _require(self.handshake_s > 0, "handshake_s", "more than 0")
        _require(self.ping_s > 0, "ping_s", "more than 0")
        silence = _PINGS_PER_SILENCE * self.ping_s
        _require(self.silence_s >= silence, "silence_s", f"at least {silence} ({_PINGS_PER_SILENCE} pings)")
        _require(self.backoff_s_min > 0, "backoff_s_min", "more than 0")
        _require(self.backoff_s_max >= self.backoff_s_min, "backoff_s_max", "at least backoff_s_min")
        _require(self.settled_s >= 0, "settled_s", "at least 0")


@dataclass(frozen=True, slots=True)
class PeerTls:
    """Mutual TLS: contexts for accepted and for dialed connections. Both must require a certificate."""

    server: ssl.SSLContext
    client: ssl.SSLContext

    def __post_init__(self) -> None:
        for name in ("server", "client"):
            mode = getattr(self, name).verify_mode
            _require(mode is ssl.CERT_REQUIRED, name, "a context with verify_mode CERT_REQUIRED")


def _require(holds: bool, name: str, rule: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {rule}")
