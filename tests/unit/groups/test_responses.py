"""Responses of the group coordinator: messages of errors."""

import pytest

from flotilla.groups.responses import not_owner_message


@pytest.mark.parametrize(
    ("partitions", "text"),
    [
        ([("orders", 1)], "orders/1 in generation 2: stop processing it, and sync"),
        ([("orders", 1), ("orders", 1)], "orders/1 in generation 2: stop processing it, and sync"),
        ([("orders", 1), ("clicks", 0)], "orders/1, clicks/0 in generation 2: stop processing them, and sync"),
        (
            [("orders", number) for number in range(5)],
            "orders/0, orders/1, orders/2 and 2 more in generation 2: stop processing them, and sync",
        ),
        ([], "these partitions in generation 2: stop processing them, and sync"),
    ],
)
def test_message_names_the_first_partitions_that_the_member_does_not_own(
    partitions: list[tuple[str, int]], text: str
) -> None:
    assert not_owner_message("one", 2, partitions) == f"member 'one' does not own {text}"
