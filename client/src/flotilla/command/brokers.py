"""`flotilla brokers`: which there are, and what they hold."""

import click

from flotilla.client.admin import BrokerDescription
from flotilla.command import asking, completing
from flotilla.command.options import Group, answers_json, asks_servers
from flotilla.command.speaking import count, say, say_json, table, tell


@click.group(cls=Group)
def brokers() -> None:
    """List and describe brokers."""


@brokers.command("list")
@answers_json
@asks_servers
def list_(server: asking.Server, as_json: bool) -> None:
    """Show all brokers."""
    found = asking.run(server, lambda admin: admin.brokers.list())
    if as_json:
        say_json({"brokers": found})
    elif found:
        heading = ("id", "url", "rack", "status", "replicas", "leads")
        rows = [(one.id, one.url, one.rack, status_of(one), len(one.partitions), one.leads) for one in found]
        say(*table([heading, *rows], numbers=heading[4:]))
    else:
        tell("there are no brokers yet")


@brokers.command()
@click.argument("id_", metavar="ID", shell_complete=completing.brokers, help="its id, the beginning of it, or its URL")
@answers_json
@asks_servers
def describe(server: asking.Server, id_: str, as_json: bool) -> None:
    """Show a broker and its partitions, as far as one may see their topics."""
    broker = asking.run(server, lambda admin: admin.brokers.describe(id_))
    if as_json:
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
