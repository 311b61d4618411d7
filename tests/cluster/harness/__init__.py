"""A real Kubernetes for tests: one node, built from package registries only, which leaves nothing behind.

`programs` builds Kubernetes and its components, `images` builds container images without a registry, `node` runs the
node in its own namespaces, and `cluster` is the API for tests and `make cluster`. `machine` checks the requirements.
"""
