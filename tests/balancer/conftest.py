"""The nodes of `coordinated`, for tests of membership and leadership."""

import pytest

from tests.balancer.coordinated import open_cluster


@pytest.fixture
async def cluster():
    async with open_cluster() as cluster:
        yield cluster
