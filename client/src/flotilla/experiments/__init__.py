"""Experiments: real producers and consumers, and a checker that proves that each consumer got what it should.

`plans` says who produces and consumes what; `samples` makes up what is sent; `producer_logs` and `consumer_logs` know
the files; `producing` and `consuming` are the single steps, each a process of its own; `running` runs all of them;
`checking` compares what came with what was sent. `api_walk` tries every call of the HTTP API. The command is `flotilla
experiment`.
"""
