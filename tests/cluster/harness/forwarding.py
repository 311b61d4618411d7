"""Forwards connections from the loopback of this machine into the node.

A socket stays in the network namespace in which it was created. The harness creates listening sockets on loopback, and
this process, inside the node, accepts connections from them and connects to the node. The node is therefore not part of
the machine's network, and only local users reach it.

Started by `node.py` as: python -m cluster.harness.forwarding FD=PORT ...
"""

import asyncio
import contextlib
import socket
import sys

from cluster.harness.addresses import NODE

_CHUNK_BYTES = 1 << 18


async def forward(listening: socket.socket, port: int) -> None:
    """Forward all connections of a listening socket."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # if one side disconnects, close the other
            there = await asyncio.open_connection(NODE, port, limit=_CHUNK_BYTES)
            await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))
        writer.close()

    server = await asyncio.start_server(accepted, sock=listening, limit=_CHUNK_BYTES)
    await server.serve_forever()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction of a connection, and its end."""
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


async def main(words: list[str]) -> None:
    """Forward all sockets."""
    pairs = [word.split("=") for word in words]
    await asyncio.gather(*(forward(socket.socket(fileno=int(number)), int(port)) for number, port in pairs))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
