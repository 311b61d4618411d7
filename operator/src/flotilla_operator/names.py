"""Names that resources of Flotilla have in Kubernetes."""

GROUP = "flotilla.dev"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
OPERATOR = "flotilla-operator"  # who manages fields, and whom events are from
FINALIZER = f"{GROUP}/topic"
MIRRORED = f"{GROUP}/mirrored"  # a label of Topics that tell of a topic that somebody made over HTTP

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
REVISION = "controller-revision-hash"
