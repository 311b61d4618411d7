"""What `flotilla produce` tells of what became of lines."""

import pytest

from flotilla.command.feeding import Account


@pytest.mark.parametrize(
    ("account", "text"),
    [
        (Account("t", 12_345, 1_300_000, 0.5, 0, 0, None), "12,345 records, 1.2MiB, 24,690 records/s"),
        (Account("t", 1, 5, 1.0, 0, 0, None), "1 record, 5B, 1 records/s"),
        (Account("t", 0, 0, 0.0, 0, 0, None), "0 records, 0B, 0 records/s"),
        (
            Account("t", 10, 100, 1.0, 1, 2000, "why"),
            "10 records, 100B, 10 records/s; 1 record not stored; 2,000 records perhaps stored",
        ),
    ],
)
def test_what_became_of_all_lines_is_told_in_one(account: Account, text: str) -> None:
    """Ok, failed and unknown are told apart."""
    assert str(account) == text
