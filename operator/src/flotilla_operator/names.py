"""Names of Flotilla's resources, labels and annotations in Kubernetes."""

GROUP = "flotilla.dev"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
OPERATOR = "flotilla-operator"  # field manager, and source of events
FINALIZER = f"{GROUP}/topic"
MIRRORED = f"{GROUP}/mirrored"  # label of Topics that mirror a topic without an owner

TOPIC, BROKER, PIPELINE = "Topic", "Broker", "Pipeline"
POD, STATEFULSET, NODE = "Pod", "StatefulSet", "Node"

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
REVISION = "controller-revision-hash"
