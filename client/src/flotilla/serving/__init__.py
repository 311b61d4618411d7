"""What every server of Flotilla has in common: ASGI without a framework, refusals, limits, settings, logs, docs.

Only servers import this package: it needs uvicorn and FastAPI, which a client does not. Nothing here knows of
records, Raft or metadata.
"""
