"""The broker's HTTP API. Start reading at `app.py`; `append.py` and `fetch.py` are what clients use most."""
