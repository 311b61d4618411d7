"""Code that all servers share: uvicorn with limits, settings, logs, metrics, access checks, quotas, TLS, API docs.

Brokers, managers and the operator import it; clients do not. It knows nothing of records, Raft or metadata.
"""
