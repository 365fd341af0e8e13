"""The fakes are kept honest: each fault names a live test that saw a real Kafka do it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"`(tests/live/\w+\.py)::(test_\w+)`")


def test_the_tests_that_faults_name_exist() -> None:
    files = ("hermes_actors/log/faults.py", "hermes_actors/log/memory.py")
    named = TEST.findall("".join((ROOT / file).read_text() for file in files))
    assert len(named) >= 17
    for path, name in named:
        text = (ROOT / path).read_text()
        assert f"def {name}(" in text
        assert "pytest.mark.kafka" in text
