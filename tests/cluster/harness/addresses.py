"""Where things are in a cluster: the node has one address on a link that only this machine has."""

from dataclasses import dataclass

SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
PODS = "10.244.0.0/24"
NODE_NAME = "node"
API_PORT = 6443
LINKS_MAX = 64  # clusters on one machine


@dataclass(frozen=True)
class Link:
    """A pair of interfaces: one end on this machine, one in the node."""

    number: int

    @property
    def name(self) -> str:
        """How the end on this machine is called."""
        return f"flotilla{self.number}"

    @property
    def host(self) -> str:
        """The address of the end on this machine."""
        return f"10.203.{self.number}.1"

    @property
    def node(self) -> str:
        """The address of the node."""
        return f"10.203.{self.number}.2"

    @property
    def api(self) -> str:
        """Where the API server is."""
        return f"https://{self.node}:{API_PORT}"
