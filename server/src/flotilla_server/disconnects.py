"""The end of a client's connection while a request waits."""

from flotilla_server.asgi import Receive


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        continue
