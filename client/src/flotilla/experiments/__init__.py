"""Experiments: an application on top of the client library, run by `flotilla experiment`. Not part of the library.

Real producers and consumers run as separate processes, and a checker compares what was received with what was sent.
This package uses the public API (`flotilla`, `flotilla.records` and `flotilla.myqueue`), with two exceptions:
`api_calls` uses the settings and the HTTP client of the library, because it tests raw HTTP calls, and `producer_logs`
checks the limits of the servers. The library does not import this package. import-linter checks both.

`plans` defines the experiments, `samples` generates messages, `producer_logs` and `consumer_logs` define the files,
`files` reads and writes them, `steps` has a single producer and consumer, `runner` runs all of them, and `checker`
compares the files. `api_test` tests the HTTP API, with the requests of `api_calls`.
"""
