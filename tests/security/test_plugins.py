"""A plug-in that cannot be used is one clear error at the start."""

import random

import pytest

from hermes_actors.config import SecurityConfig
from hermes_actors.errors import StartupError
from hermes_actors.runtime.clock import SystemClock, seeded_ids
from hermes_actors.runtime.workers import InlinePool
from hermes_actors.security.opening import open_authenticator

BROKEN = """
def needs_more(context):
    raise KeyError("ACME_URL")

def nothing(context):
    return None

class Half:
    challenge = ""
    async def identify(self, credentials):
        return None

def half(context):
    return Half()
"""


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        ("json:loads", "cannot be made: TypeError('the JSON object must be str"),
        ("acme_broken:needs_more", "cannot be made: KeyError('ACME_URL')"),
        ("acme_broken:nothing", "made a NoneType, which has no identify, run, challenge"),
        ("acme_broken:half", "made a Half, which has no run"),
        ("acme_broken:absent", "cannot be loaded: module 'acme_broken' has no attribute"),
        ("acme_absent:make", "cannot be loaded: No module named 'acme_absent'"),
        ("acme_torn:make", "cannot be loaded: ZeroDivisionError('division by zero')"),
    ],
)
async def test_a_plugin_that_cannot_be_used_is_named_with_the_field_and_the_error(
    plugin, reason, tmp_path, monkeypatch
):
    (tmp_path / "acme_broken.py").write_text(BROKEN)
    (tmp_path / "acme_torn.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = SecurityConfig(plugins=[plugin])
    with pytest.raises(StartupError) as raised:
        await open_authenticator(config, SystemClock(), seeded_ids(random.Random(1)), InlinePool())
    assert raised.value.message.startswith(f"security.plugins: '{plugin}' {reason}")
