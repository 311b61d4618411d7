"""Internal: the server side of the HTTP protocol: parameters, request and response bodies, and errors with their codes.

Servers and the fake of `flotilla.testing` share it, so both respond alike. It needs no web framework.
"""
