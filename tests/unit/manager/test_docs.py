"""What the docs fill in is something that the calls take."""

import msgspec
import pytest

from flotilla.serving import shapes
from flotilla.serving.params import Reader


@pytest.mark.parametrize("kind", shapes.SAMPLES)
def test_a_sample_is_taken_as_it_is(kind: type[shapes.Params]) -> None:
    sample = shapes.SAMPLES[kind]
    taken = msgspec.structs.asdict(Reader(kind).read(b"", msgspec.json.encode(sample), {}))
    assert {name: taken[name] for name in sample} == sample


def test_every_call_that_needs_something_has_a_sample() -> None:
    for kind in shapes.Params.__subclasses__():
        needs = [field for field in msgspec.structs.fields(kind) if field.required]
        assert not needs or kind in shapes.SAMPLES, kind
