"""The client library. `flotilla.Client` and `flotilla.AsyncClient` are what people use; see docs/client.md.

One core on asyncio does the work (`engine`, and what it is made of); two small drivers give it to people: `aio` on the
loop of the caller, `blocking` on a loop in a thread of its own.
"""
