"""`flotilla brokers`: which there are, and what they hold."""

import argparse

from flotilla.client.admin import BrokerDescription
from flotilla.command import asking
from flotilla.command.speaking import Commands, add_common, add_parser, count, say, say_json, table, tell

_DESCRIBE = """\
Show a broker and its partitions, as far as one may see their topics. The beginning of its id is enough.
"""


def add_command(commands: Commands) -> None:
    """Declare the command."""
    description = f"List and describe brokers.\n\n{asking.WHO}"
    brokers = add_parser(commands, "brokers", "who holds the records", description)
    tasks = brokers.add_subparsers(title="tasks", metavar="TASK", required=True)
    add_common(add_parser(tasks, "list", "show all brokers", f"Show all brokers.\n\n{asking.WHO}"), _list)
    describe = add_parser(tasks, "describe", "show a broker and its partitions", f"{_DESCRIBE}\n{asking.WHO}")
    describe.add_argument("broker", metavar="ID", help="its id, the beginning of it, or its URL")
    add_common(describe, _describe)


def _list(found: argparse.Namespace, server: asking.Server) -> None:
    brokers = asking.run(server, lambda admin: admin.brokers.list())
    if found.json:
        say_json({"brokers": brokers})
    elif brokers:
        heading = ("id", "url", "rack", "status", "replicas", "leads")
        rows = [(one.id, one.url, one.rack, status_of(one), len(one.partitions), one.leads) for one in brokers]
        say(*table([heading, *rows], numbers=heading[4:]))
    else:
        tell("there are no brokers yet")


def _describe(found: argparse.Namespace, server: asking.Server) -> None:
    broker = asking.run(server, lambda admin: admin.brokers.describe(found.broker))
    if found.json:
        say_json(broker)
        return
    rack = "" if broker.rack is None else f", in rack {broker.rack}"
    held = f"{count(len(broker.partitions), 'replica')}, of which it leads {broker.leads}"
    say(f"broker {broker.id} at {broker.url} is {status_of(broker)}{rack}; it holds {held}")
    if broker.partitions:
        rows = [(one.topic, one.partition, "leader" if one.is_leader else "follower") for one in broker.partitions]
        say("", *table([("topic", "partition", "role"), *rows], numbers={"partition"}))


def status_of(broker: BrokerDescription) -> str:
    """Say how a broker is."""
    if not broker.active:
        return "inactive"
    return "deactivated" if broker.cordoned else "active"
