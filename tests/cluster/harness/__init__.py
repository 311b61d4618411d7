"""A real Kubernetes for the tests: one node, made from package registries alone, that leaves no trace.

`programs` builds Kubernetes and what belongs to it, `images` makes container images without a registry, `node` runs
the node in namespaces of its own, `cluster` is what tests and `make cluster` use. `machine` says what has to be there.
"""
