"""Where things are in a cluster. None of these addresses exists outside of the node's own network namespace."""

NODE = "10.203.0.2"
NODE_NAME = "node"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
PODS = "10.244.0.0/24"
API_PORT = 6443
FORWARDED = (API_PORT, 80, 443)  # ports of the node that can be reached from this machine, by other numbers
