"""The manager: simple API and v1 API, metadata, placement, and routing to brokers."""
