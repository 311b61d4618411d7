"""`flotilla brokers`: list and describe brokers."""

import click

from flotilla.client.admin import BrokerDescription, label_brokers
from flotilla.command import completers, connection
from flotilla.command.options import Group, connection_options, json_option
from flotilla.command.output import format_table, print_json, print_lines, print_message


@click.group(cls=Group)
def brokers() -> None:
    """List and describe brokers.

    To cordon a broker, use the HTTP API: POST /admin/broker/deactivate.
    """


@brokers.command("list")
@json_option
@connection_options
def list_(server: connection.ConnectionTarget, as_json: bool) -> None:
    """List brokers."""
    found = connection.run(server, lambda admin: admin.brokers.list())
    if as_json:
        print_json({"brokers": found})
    elif found:
        heading = ("name", "url", "rack", "status", "replicas", "leaders")
        labels = label_brokers(found)
        rows = [(labels[one.id], one.url, one.rack, status_of(one), len(one.partitions), one.leads) for one in found]
        print_lines(*format_table([heading, *rows], numbers=heading[4:]))
    else:
        print_message(
            "no brokers registered; brokers register when they start: check their logs and their setting `managers`"
        )


@brokers.command()
@click.argument(
    "id_",
    metavar="BROKER",
    shell_complete=completers.brokers,
    help="Name, URL or id of the broker, or a prefix of its id.",
)
@json_option
@connection_options
def describe(server: connection.ConnectionTarget, id_: str, as_json: bool) -> None:
    """Show a broker and its replicas.

    Replicas of topics that the token has no grant for are omitted.
    """
    broker = connection.run(server, lambda admin: admin.brokers.describe(id_))
    if as_json:
        print_json(broker)
        return
    rows = [
        ("name", broker.name),
        ("id", broker.id),
        ("url", broker.url),
        ("rack", broker.rack),
        ("status", status_of(broker)),
        ("replicas", len(broker.partitions)),
        ("leaders", broker.leads),
    ]
    print_lines(*format_table(rows))
    if broker.partitions:
        held = [(one.topic, one.partition, "leader" if one.is_leader else "follower") for one in broker.partitions]
        print_lines("", *format_table([("topic", "partition", "role"), *held], numbers={"partition"}))


def status_of(broker: BrokerDescription) -> str:
    """Return the status of a broker."""
    if not broker.active:
        return "inactive"
    return "cordoned" if broker.cordoned else "active"
