"""The nodes of `coordinated`, for the tests of who takes part and who leads."""

import pytest

from tests.balancer.coordinated import open_cluster


@pytest.fixture
async def cluster():
    async with open_cluster() as cluster:
        yield cluster
