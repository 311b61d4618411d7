"""Internal: a small, fast asyncio HTTP client for requests between Flotilla clients and servers.

Use `Pool.request`; `Connection` is a single connection, with one request at a time. With https:// URLs they use TLS
and verify the certificate of the server. There are no redirects, no cookies and no HTTP/2. The server is not trusted:
every response is validated, and its size is limited.
"""

from flotilla.net.connection import Connection, Response
from flotilla.net.errors import Disconnected, InvalidResponse, TimedOut
from flotilla.net.pool import Pool

__all__ = ["Connection", "Disconnected", "InvalidResponse", "Pool", "Response", "TimedOut"]
