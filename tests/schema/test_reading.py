"""What a node knows of the schemas of stored messages, and what it shows of them."""

import pytest

from tests.consumer.avro_scene import NAMED, PLAIN, HandSource


@pytest.fixture
def source():
    source = HandSource()
    source.add(1, 11, PLAIN)
    source.add(2, 22, NAMED)
    return source
