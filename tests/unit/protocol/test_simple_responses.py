"""Responses of the simple API: the JSON that users and their scripts read, byte for byte."""

import msgspec
import pytest

from flotilla.protocol.json_batches import write_fetched
from flotilla.protocol.responses import Response
from flotilla.protocol.simple import success
from flotilla.protocol.simple_responses import (
    BrokerChangedResponse,
    ConsumedResponse,
    ConsumerIdResponse,
    ConsumersResponse,
    ListedConsumerResponse,
    ListedManagerResponse,
    ListedProducerResponse,
    ManagersResponse,
    MessageResponse,
    ProducedResponse,
    ProducerIdResponse,
    ProducersResponse,
    RootResponse,
    SimplePartitionResponse,
    SimpleTopicResponse,
    SizesResponse,
    TopicNamesResponse,
    status,
)
from flotilla.records import assign, encode

PARTITION = SimplePartitionResponse.of(0, leader="a", replicas=("a", "b"), size_bytes=70, first_offset=3, next_offset=9)
SILENT = SimplePartitionResponse.of(
    1, leader=None, replicas=("a",), size_bytes=None, first_offset=None, next_offset=None
)


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (MessageResponse.created("t"), """{"message":"Topic 't' created successfully."}"""),
        (MessageResponse.deleted("t"), """{"message":"Topic 't' deleted successfully."}"""),
        (
            RootResponse(version="1.2", role="reader"),
            '{"message":"Flotilla, a replicated message log.","version":"1.2","role":"reader","docs":"/docs"}',
        ),
        (TopicNamesResponse(topics=["b", "a"]), '{"topics":["b","a"]}'),
        (
            SimpleTopicResponse(topic="t", topic_id="5f", partitions=[PARTITION, SILENT]),
            (
                '{"topic":"t","topic_id":"5f","partitions":['
                '{"partition_index":0,"leader":"a","replicas":["a","b"],"size":6,"size_bytes":70,'
                '"first_offset":3,"next_offset":9},'
                '{"partition_index":1,"leader":null,"replicas":["a"],"size":null,"size_bytes":null,'
                '"first_offset":null,"next_offset":null}]}'
            ),
        ),
        (ProducerIdResponse(producer_id="p"), '{"producer_id":"p"}'),
        (ConsumerIdResponse(consumer_id="c"), '{"consumer_id":"c"}'),
        (ProducedResponse(partition_index=1, offset=7), '{"partition_index":1,"offset":7}'),
        (ConsumedResponse.of("é".encode(), 1, 7), '{"message":"é","partition_index":1,"offset":7}'),
        (ConsumedResponse.of(b"\xff", 1, 7), '{"message_base64":"/w==","partition_index":1,"offset":7}'),
        (
            SizesResponse.of({0: 2, 1: 3}),
            '{"sizes":[{"partition_number":0,"size":2},{"partition_number":1,"size":3}],"size":5}',
        ),
        (
            ProducersResponse(
                producers=[ListedProducerResponse(producer_id="p", topic="t", status=status(is_active=True))], after="p"
            ),
            '{"producers":[{"producer_id":"p","topic":"t","status":"active"}],"after":"p"}',
        ),
        (
            ConsumersResponse(
                consumers=[
                    ListedConsumerResponse(
                        consumer_id="c", topic="t", partition_index=None, status=status(is_active=False)
                    )
                ],
                after=None,
            ),
            '{"consumers":[{"consumer_id":"c","topic":"t","partition_index":null,"status":"inactive"}],"after":null}',
        ),
        (
            ManagersResponse(
                managers=[ListedManagerResponse(name="m", role="writer", url="http://m", status="active")]
            ),
            '{"managers":[{"name":"m","role":"writer","url":"http://m","status":"active"}]}',
        ),
        (BrokerChangedResponse.of("added", "b"), '{"message":"Broker added successfully.","broker_id":"b"}'),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Response) else "",
)
def test_response_has_its_fields_in_order(response: Response, text: str) -> None:
    assert msgspec.json.encode(response.to_dict()).decode() == text
    assert success(response.to_dict()).decode() == text.replace("{", '{"status":"success",', 1)


def test_fetch_as_json_has_records_and_the_range_of_offsets() -> None:
    batch = encode([b"x", b"y"])
    assign(batch, 4, 1000)
    assert write_fetched(bytes(batch), 5, 3, 9) == (
        b'{"records":[{"offset":5,"append_time_ms":1000,"value":"y"}],"next_offset":6,"first_offset":3,"end_offset":9}'
    )
