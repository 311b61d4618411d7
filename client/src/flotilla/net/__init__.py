"""A small, fast HTTP client on asyncio, for what servers and programs of Flotilla say to each other.

`Pool.request` is what most need; `Connection` is one connection, one request at a time. With https:// URLs they speak
TLS, and check who answers. No redirects, no cookies, no HTTP/2: the other end is a server of ours, and yet it may be
anything, so every answer is checked and limited.
"""

from flotilla.net.connection import Connection, Response
from flotilla.net.errors import AnswerInvalid, Disconnected, TimedOut
from flotilla.net.pool import Pool

__all__ = ["AnswerInvalid", "Connection", "Disconnected", "Pool", "Response", "TimedOut"]
