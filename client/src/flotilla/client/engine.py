"""The parts of a client on one event loop: connections, metadata, requests to managers, and the router."""

import asyncio

from flotilla.client.cluster import Cluster, ManagerClient
from flotilla.client.config import ClientConfig
from flotilla.client.router import Router
from flotilla.net import Pool

_APPENDS_MAX = 64  # connections to one server
_FETCHES_MAX = 512  # more than for appends: fetches wait for records
_CONNECT_S = 2.0  # connect timeout; it also detects networks that drop packets


class Engine:
    """The core of a client. Create and use it on an event loop."""

    def __init__(self, config: ClientConfig) -> None:
        tls = config.make_tls()
        self.config = config
        self.clock = asyncio.get_running_loop().time
        self.control = Pool(tls=tls)
        self.appends = Pool(open_max=_APPENDS_MAX, connect_s=_CONNECT_S, tls=tls)
        self.fetches = Pool(open_max=_FETCHES_MAX, connect_s=_CONNECT_S, tls=tls)
        self.managers = ManagerClient(config, self.control, self.clock)
        self.cluster = Cluster(self.managers)
        self.router = Router(config, self.cluster, self.managers, self.appends, self.fetches, self.clock)

    def close(self) -> None:
        """Close all connections."""
        self.router.close()
        for pool in (self.control, self.appends, self.fetches):
            pool.close()
