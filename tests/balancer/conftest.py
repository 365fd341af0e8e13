"""The nodes of `coordinated`, for the tests of who takes part and who leads."""

import sys
from pathlib import Path

import pytest

# Test modules are imported by their path; a helper beside them is found by its folder's.
sys.path.insert(0, str(Path(__file__).parent))
from coordinated import open_cluster


@pytest.fixture
async def cluster():
    async with open_cluster() as cluster:
        yield cluster
