"""The client library. Internal: users import its classes from `flotilla`; see docs/client-reference.md.

One core on asyncio does the work (`engine` and its parts). Two thin layers expose it: `aio` on the caller's event loop,
and `blocking` on an event loop in a thread of its own.
"""
