"""`flotilla topics`, `groups` and `brokers`: requests, output and confirmation."""

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from flotilla.command import main
from flotilla.command.output import format_table
from support.fakemanager import FakeManager, serving

ONE, TWO = "1" * 32, "2" * 32
ORDERS: dict[str, Any] = {
    "name": "orders",
    "id": "a" * 32,
    "partitions": [{"index": at, "epoch": 1, "replicas": [ONE, TWO], "leader": ONE} for at in range(2)],
    "replication": 2,
    "retention_ms": 604_800_000,
    "retention_bytes": 10 << 30,
    "batch_bytes_max": None,
    "compression": "zstd",
    "owner": None,
}
BROKERS = [
    {"id": ONE, "name": "broker-1", "url": "http://b:1", "rack": "r", "active": True, "cordoned": False},
    {"id": TWO, "name": "broker-2", "url": "http://b:2", "rack": None, "active": True, "cordoned": True},
    {"id": "3" * 32, "url": "http://b:3", "rack": None, "active": False, "cordoned": False},
]
METADATA = {"version": 1, "cluster_id": "c", "topics": [ORDERS], "brokers": BROKERS}
PARTITIONS = [
    {
        "partition_index": 0,
        "leader": ONE,
        "replicas": [ONE, TWO],
        "size": 90,
        "size_bytes": 1_500_000,
        "first_offset": 10,
        "next_offset": 100,
    },
    {
        "partition_index": 1,
        "leader": None,
        "replicas": [ONE, TWO],
        "size": None,
        "size_bytes": None,
        "first_offset": None,
        "next_offset": None,
    },
]
PLACE = {"topic": "orders", "note": None, "first_offset": 0, "next_offset": 9}
BILLING: dict[str, Any] = {
    "name": "billing",
    "state": "stable",
    "strategy": "sticky",
    "generation": 3,
    "members": [
        {"member_id": "me", "topics": ["orders"], "timeout_ms": 10_000, "generation": 3, "assigned": []},
    ],
    "partitions": [
        {**PLACE, "partition": 0, "owner": "me", "committed": 4, "lag": 5},
        {**PLACE, "partition": 1, "owner": None, "committed": None, "lag": 9},
    ],
}
MOVED = {"topic": "orders", "partition": 0, "old_offset": 4, "new_offset": 0}
ANSWERS: dict[str, object] = {
    "GET /v1/topics": {"topics": [ORDERS]},
    "POST /v1/topics": ORDERS,
    "GET /v1/topics/": ORDERS,
    "PATCH /v1/topics/": ORDERS,
    "DELETE ": {"status": "ok"},
    "GET /topics/orders/partitions": {"partitions": PARTITIONS},
    "POST /v1/topics/orders/delete-records": {
        "partitions": [{"partition": 1, "first_offset": 7, "next_offset": 100}],
    },
    "GET /v1/metadata": METADATA,
    "GET /v1/groups": {
        "groups": [{**BILLING, "members": 1, "topics": ["orders", "parcels"]}],
        "next": None,
    },
    "GET /v1/groups/": BILLING,
    "POST /v1/groups/billing/reset": {"partitions": [MOVED]},
}


class Terminal(io.StringIO):
    """Standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeManager]:
    for name in ("FLOTILLA_TOKEN", "FLOTILLA_SECRET", "FLOTILLA_TLS_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with serving() as server:
        server.answers = dict(ANSWERS)
        monkeypatch.setenv("FLOTILLA_URL", server.url)
        yield server


def asked(manager: FakeManager) -> list[tuple[str, Any]]:
    return [(f"{method} {target}", body) for method, target, _, body in manager.asked]


# -- output -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            "topics list",
            [
                "name    partitions  replication  retention  compression",
                "orders           2            2  7d, 10GiB  zstd",
            ],
        ),
        ("topics create orders", ["created topic 'orders' with 2 partitions, 2 replicas each"]),
        ("topics create orders --exist-ok", ["created topic 'orders' with 2 partitions, 2 replicas each"]),
        (
            "topics describe orders",
            [
                "name             orders",
                f"id               {'a' * 32}",
                "partitions       2",
                "replication      2",
                "retention        7d",
                "retention-bytes  10GiB",
                "batch-bytes-max  default",
                "compression      zstd",
                "",
                "partition  leader    replicas           first  next  records    size",
                "        0  broker-1  broker-1 broker-2     10   100       90  1.4MiB",
                "        1  -         broker-1 broker-2      -     -        -       -",
            ],
        ),
        (
            "topics config orders",
            [
                "retention        7d",
                "retention-bytes  10GiB",
                "batch-bytes-max  default",
                "compression      zstd",
            ],
        ),
        ("topics grow orders 2", ["topic 'orders' now has 2 partitions, 2 replicas each"]),
        ("topics delete orders", ["topic 'orders' deleted"]),
        ("topics delete-records orders 1=7", ["partition  first  next", "        1      7   100"]),
        (
            "groups list",
            [
                "name     state   members  strategy  topics",
                "billing  stable        1  sticky    orders parcels",
            ],
        ),
        (
            "groups describe billing",
            [
                "group 'billing': stable, 1 member, generation 3, lag 14",
                "",
                "member  partitions  topics  timeout",
                "me               0  orders  10s",
                "",
                "topic   partition  owner  committed  first  next  lag  note",
                "orders          0  me             4      0     9    5  -",
                "orders          1  -              -      0     9    9  -",
            ],
        ),
        ("groups reset billing --to earliest", ["topic   partition  old  new", "orders          0    4    0"]),
        ("groups delete billing", ["group 'billing' deleted"]),
        (
            "brokers list",
            [
                "name      url         rack  status    replicas  leaders",
                "broker-1  http://b:1  r     active           2        2",
                "broker-2  http://b:2  -     cordoned         2        0",
                "33333333  http://b:3  -     inactive         0        0",
            ],
        ),
        (
            "brokers describe broker-1",
            [
                "name      broker-1",
                f"id        {ONE}",
                "url       http://b:1",
                "rack      r",
                "status    active",
                "replicas  2",
                "leaders   2",
                "",
                "topic   partition  role",
                "orders          0  leader",
                "orders          1  leader",
            ],
        ),
        (
            "brokers describe 33",
            [
                "name      -",
                f"id        {'3' * 32}",
                "url       http://b:3",
                "rack      -",
                "status    inactive",
                "replicas  0",
                "leaders   0",
            ],
        ),
    ],
)
def test_output_is_a_table(
    manager: FakeManager, capsys: pytest.CaptureFixture[str], arguments: str, lines: list[str]
) -> None:
    assert main(arguments.split()) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == lines
    assert (captured.err, manager.status) == ("", 200)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("topics list", {"topics": [ORDERS]}),
        ("topics create orders", ORDERS),
        ("topics config orders", ORDERS),
        ("topics grow orders 2", ORDERS),
        ("topics delete orders", {"status": "ok"}),
        ("topics delete-records orders 1=7", {"partitions": [{"index": 1, "first_offset": 7, "next_offset": 100}]}),
        ("groups describe billing", {**BILLING, "lag": 14}),
        ("groups reset billing --to earliest", {"dry_run": False, "partitions": [MOVED]}),
        ("groups delete billing", {"status": "ok"}),
    ],
)
@pytest.mark.usefixtures("manager")
def test_json_output_has_the_result(capsys: pytest.CaptureFixture[str], arguments: str, answer: dict[str, Any]) -> None:
    assert main([*arguments.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    if arguments.startswith("topics delete-records"):
        assert found["partitions"][0].pop("offset") is None
    assert found == answer


@pytest.mark.usefixtures("manager")
def test_json_output_has_the_field_names_of_the_client(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "describe", "orders", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["topic"] == ORDERS
    known = {"index": 0, "leader": ONE, "replicas": [ONE, TWO], "records": 90, "size_bytes": 1_500_000}
    assert found["partitions"][0] == {**known, "first_offset": 10, "next_offset": 100}
    assert main(["brokers", "list", "--json"]) == 0
    first, *_ = json.loads(capsys.readouterr().out)["brokers"]
    assert (first["id"], first["partitions"][0]) == (ONE, {"topic": "orders", "partition": 0, "is_leader": True})


@pytest.mark.parametrize(
    ("arguments", "answers", "text"),
    [
        ("topics list", {"GET ": {"topics": []}}, "no topics found; create one with `flotilla topics create"),
        ("groups list", {"GET ": {"groups": [], "next": None}}, "no consumer groups found"),
        ("brokers list", {"GET ": {**METADATA, "brokers": []}}, "no brokers registered"),
    ],
)
def test_empty_list_prints_a_hint(
    manager: FakeManager, capsys: pytest.CaptureFixture[str], arguments: str, answers: dict[str, object], text: str
) -> None:
    manager.answers = answers
    assert main(arguments.split()) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err


@pytest.mark.parametrize(
    ("arguments", "resource", "text"),
    [
        ("topics delete x --missing-ok", "topic", "topic 'x' does not exist\n"),
        ("groups delete x --missing-ok", "group", "group 'x' does not exist\n"),
    ],
)
def test_delete_with_missing_ok_reports_a_missing_resource(
    manager: FakeManager, capsys: pytest.CaptureFixture[str], arguments: str, resource: str, text: str
) -> None:
    manager.status = 404
    manager.answers = {"DELETE ": {"code": "not_found", "message": "no", "details": {"resource": resource}}}
    assert main(arguments.split()) == 0
    assert capsys.readouterr().out == text
    assert main(arguments.removesuffix(" --missing-ok").split()) == 1
    assert capsys.readouterr().out == ""


def test_describe_group_prints_unknown_lag(manager: FakeManager, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = {**BILLING["partitions"][0], "first_offset": None, "next_offset": None, "lag": None}
    manager.answers = {"GET ": {**BILLING, "members": [], "partitions": [unknown]}}
    assert main(["groups", "describe", "billing"]) == 0
    assert "0 members, generation 3, lag unknown" in capsys.readouterr().out


def test_table_columns_fit_their_content() -> None:
    assert format_table([("a", "n"), ("longer", 5), (None, 12345)], numbers={"n"}) == [
        "a           n",
        "longer      5",
        "-       12345",
    ]


# -- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "request_", "body"),
    [
        ("topics create x --retention forever", "POST /v1/topics", {"retention_ms": None}),
        ("topics create x", "POST /v1/topics", {"partitions": 2, "replication": 3}),
        (
            (
                "topics create x --partitions 4 --replication 1 --retention 2d --retention-bytes 1GiB "
                "--batch-bytes-max 1MiB --compression zstd"
            ),
            "POST /v1/topics",
            {
                "partitions": 4,
                "replication": 1,
                "retention_ms": 172_800_000,
                "retention_bytes": 1 << 30,
                "batch_bytes_max": 1 << 20,
                "compression": "zstd",
            },
        ),
        ("topics config a/b --retention 1h", "PATCH /v1/topics/a%2Fb", {"retention_ms": 3_600_000}),
        (
            "topics config x --retention forever --unset retention-bytes --unset compression",
            "PATCH /v1/topics/x",
            {"retention_ms": None, "retention_bytes": None, "compression": None},
        ),
        ("topics grow x 8", "PATCH /v1/topics/x", {"partitions": 8}),
        (
            "topics delete-records orders 0=5 1=latest",
            "POST /v1/topics/orders/delete-records",
            {"partitions": [{"partition": 0, "offset": 5}, {"partition": 1, "offset": "latest"}]},
        ),
        (
            "topics delete-records orders --all",
            "POST /v1/topics/orders/delete-records",
            {"partitions": [{"partition": 0, "offset": "latest"}, {"partition": 1, "offset": "latest"}]},
        ),
        ("groups reset billing --offset 5", "POST /v1/groups/billing/reset", {"to": {"offset": 5}}),
        ("groups reset billing --shift -5", "POST /v1/groups/billing/reset", {"to": {"shift": -5}}),
        (
            "groups reset billing --to 2026-01-31 --topic a --topic b --force --dry-run",
            "POST /v1/groups/billing/reset",
            {"to": {"timestamp_ms": 1_769_817_600_000}, "topics": ["a", "b"], "force": True, "dry_run": True},
        ),
        (
            "groups reset billing --to 2026-01-31T01:00+01:00 --partition a:1",
            "POST /v1/groups/billing/reset",
            {"to": {"timestamp_ms": 1_769_817_600_000}, "partitions": [{"topic": "a", "partition": 1}]},
        ),
        ("groups delete billing --force", "DELETE /v1/groups/billing?force=true", None),
    ],
)
def test_arguments_become_the_request(
    manager: FakeManager, arguments: str, request_: str, body: dict[str, Any] | None
) -> None:
    assert main(arguments.split()) == 0
    last, sent = asked(manager)[-1]
    assert last == request_
    assert sent is None if body is None else sent.items() >= body.items()
    if request_.startswith("PATCH"):
        assert sent == body, "settings that are not named are unchanged"


def test_reset_accepts_a_negative_duration(manager: FakeManager) -> None:
    before_ms = time.time_ns() // 1_000_000
    assert main(["groups", "reset", "billing", "--to", "-1h", "--yes"]) == 0
    _, sent = asked(manager)[-1]
    assert 0 <= sent["to"]["timestamp_ms"] + 3_600_000 - before_ms < 60_000


@pytest.mark.parametrize(
    ("status", "code", "requests"),
    [
        (409, "exists", ["POST /v1/topics", "GET /v1/topics/orders"]),
        (504, "unknown_outcome", ["POST /v1/topics", "POST /v1/topics"]),
    ],
)
def test_create_with_exist_ok_prints_that_the_topic_exists_unless_it_is_known_to_be_new(
    manager: FakeManager, capsys: pytest.CaptureFixture[str], status: int, code: str, requests: list[str]
) -> None:
    manager.statuses = [status]
    manager.answers["POST /v1/topics"] = {**ORDERS, "code": code, "message": "it is so"}
    assert main(["topics", "create", "orders", "--exist-ok"]) == 0
    assert capsys.readouterr().out == "topic 'orders' exists with 2 partitions, 2 replicas each\n"
    assert [request for request, _ in asked(manager)] == requests


def test_create_without_retention_uses_the_server_default(manager: FakeManager) -> None:
    main(["topics", "create", "x"])
    assert "retention_ms" not in asked(manager)[0][1]


# -- confirmation -----------------------------------------------------------------------------------------------------

DESTRUCTIVE = [
    "topics delete orders",
    "topics delete-records orders 0=5",
    "groups reset billing --to earliest",
    "groups delete billing",
]


@pytest.mark.parametrize("arguments", DESTRUCTIVE)
@pytest.mark.parametrize("said", ["n\n", "\n", "", "no, thanks\n"])
def test_declined_confirmation_changes_nothing(
    manager: FakeManager,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    said: str,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(said))
    assert main(arguments.split()) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "? [y/N] " in captured.err
    assert captured.err.endswith("nothing was changed\n")
    assert all(body is not None and body["dry_run"] for _, body in asked(manager))


@pytest.mark.parametrize("arguments", DESTRUCTIVE)
@pytest.mark.parametrize("sure", ["y\n", "YES\n", None])
def test_confirmation_or_yes_option_runs_the_command(
    manager: FakeManager,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    sure: str | None,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(sure or ""))
    assert main([*arguments.split(), *(["--yes"] if sure is None else [])]) == 0
    assert ("[y/N]" in capsys.readouterr().err) is (sure is not None)
    assert asked(manager)[-1][0].startswith(("DELETE", "POST"))


@pytest.mark.usefixtures("manager")
def test_group_reset_shows_new_offsets_before_confirmation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert main(["groups", "reset", "billing", "--to", "earliest"]) == 1
    assert (
        "orders          0    4    0\nReset the offsets of group 'billing' as shown? [y/N]" in capsys.readouterr().err
    )


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("topics", "COMMAND"),
        ("topics create", "TOPIC"),
        ("topics create x --partitions 0", "at least 1"),
        ("topics create x --retention soon", "30d"),
        ("topics create x --compression gzip", "'gzip' is not one of 'none', 'zstd'"),
        ("topics config x --unset colour", "'colour' is not one of 'retention', "),
        ("topics grow x", "N"),
        ("topics delete-records x 5", "such as 0=100 or 0=latest"),
        ("topics delete-records x 0=-5", "such as 0=100 or 0=latest"),
        ("groups reset g", "One of --to, --offset and --shift is required"),
        ("groups reset g --to first", "'first' is not valid: use earliest, latest, an ISO 8601 time, or a time ago"),
        ("groups reset g --to -1", "or a time ago, as in -1h"),
        ("groups reset g --to latest --shift 5", "--to and --shift are mutually exclusive"),
        ("groups reset g --to latest --partition 5", "such as orders:0"),
        ("groups reset g --to latest --partition a:0 --topic b", "--topic and --partition are mutually exclusive"),
        ("brokers describe", "BROKER"),
    ],
)
def test_invalid_arguments_exit_with_2_and_the_rule(
    capsys: pytest.CaptureFixture[str], arguments: str, text: str
) -> None:
    assert main(arguments.split()) == 2
    captured = capsys.readouterr()
    assert text in captured.err
    assert f"Usage: flotilla {arguments.split(maxsplit=1)[0]}" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            "topics config x --retention 1d --unset retention",
            "--retention and --unset retention are mutually exclusive",
        ),
        ("topics delete-records x", "expected PARTITION=OFFSET once for each partition"),
        ("topics delete-records x 0=1 --all", "or --all"),
        ("topics delete-records x 0=1 0=2", "once for each partition"),
        ("topics describe ..", "name must be the name of a topic"),
        ("topics create a/b", "topic 'a/b': name must match [A-Za-z0-9][A-Za-z0-9._-]{0,199}\n"),
    ],
)
def test_contradicting_or_invalid_arguments_send_no_request(
    manager: FakeManager, capsys: pytest.CaptureFixture[str], arguments: str, text: str
) -> None:
    assert main(arguments.split()) == 2
    assert text in capsys.readouterr().err
    assert not manager.asked


@pytest.mark.parametrize(
    ("status", "code", "arguments", "text"),
    [
        (404, "not_found", "topics describe x", "flotilla topics: it is so\n"),
        (409, "exists", "topics create x", "topic 'x' already exists; to accept an existing topic, use --exist-ok\n"),
        (409, "group_not_empty", "groups delete g", "flotilla groups: it is so\n"),
        (401, "unauthorized", "brokers list", "flotilla brokers: authentication required: set FLOTILLA_TOKEN"),
        (503, "unavailable", "topics list", "is unavailable: it is so\n"),
        (504, "unknown_outcome", "topics create x", "it is so. The request may have taken effect\n"),
    ],
)
def test_rejection_prints_the_message_of_the_server(
    manager: FakeManager, capsys: pytest.CaptureFixture[str], status: int, code: str, arguments: str, text: str
) -> None:
    manager.answers, manager.status = {}, status
    manager.answer = json.dumps({"code": code, "message": "it is so"}).encode()
    assert main(arguments.split()) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err
    assert len(manager.asked) == 1
