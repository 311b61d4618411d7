"""HTTP endpoints: simple API, v1 API, control API, health."""
