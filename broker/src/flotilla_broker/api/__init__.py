"""The broker's HTTP API. Start at `app.py`; clients mostly use `append.py` and `fetch.py`."""
