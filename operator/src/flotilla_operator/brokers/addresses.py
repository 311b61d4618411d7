"""Host names under which the brokers of a set register: POD.SET.NAMESPACE.svc. Pure."""


def domain_of(set_name: str, namespace: str) -> str:
    """Return the domain of a set: that of its headless Service."""
    return f"{set_name}.{namespace}.svc"


def host_of(pod: str, set_name: str, namespace: str) -> str:
    """Return the host name of the broker in a pod."""
    return f"{pod}.{domain_of(set_name, namespace)}"


def pod_of(host: str) -> str:
    """Return the pod of a host name."""
    return host.partition(".")[0]


def set_of(host: str, namespace: str) -> str | None:
    """Return the set of a host name; None if it is not one of this namespace."""
    set_name = host.partition(".")[2].partition(".")[0]
    return set_name if host == host_of(pod_of(host), set_name, namespace) else None
