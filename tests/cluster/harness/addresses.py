"""Addresses in a cluster. They exist only in the network namespace of the node."""

NODE = "10.203.0.2"
NODE_NAME = "node"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
PODS = "10.244.0.0/24"
API_PORT = 6443
FORWARDED = (API_PORT, 80, 443)  # ports of the node that are forwarded to other ports of this machine
