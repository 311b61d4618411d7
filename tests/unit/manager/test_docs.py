"""Samples in the interactive API documentation are valid requests."""

import msgspec
import pytest

from flotilla.protocol import simple_params
from flotilla.protocol.params import Reader


@pytest.mark.parametrize("kind", simple_params.SAMPLES)
def test_samples_are_valid_requests(kind: type[simple_params.Params]) -> None:
    sample = simple_params.SAMPLES[kind]
    taken = msgspec.structs.asdict(Reader(kind).read(b"", msgspec.json.encode(sample), {}))
    assert {name: taken[name] for name in sample} == sample


def test_every_operation_with_required_input_has_a_sample() -> None:
    for kind in simple_params.Params.__subclasses__():
        needs = [field for field in msgspec.structs.fields(kind) if field.required]
        assert not needs or kind in simple_params.SAMPLES, kind
