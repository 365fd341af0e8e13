"""The mechanisms' background work: each goes on by itself, and none takes the node down."""

import random

import trio

from hermes_actors.actors.supervisor import Crash, open_supervisor
from hermes_actors.security.account import Account, Credentials
from hermes_actors.security.authenticator import Authenticator


class Plugin:
    """Its background work does what a test says."""

    challenge = ""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self.started = 0

    async def identify(self, credentials: Credentials) -> Account | None:
        return None

    async def run(self) -> None:
        self.started += 1
        if self._fails:
            raise ConnectionError("the directory is away")
        await trio.sleep_forever()


async def test_a_mechanism_that_fails_again_and_again_fails_alone(autojump_clock):
    broken, sound = Plugin(fails=True), Plugin(fails=False)
    crashes: list[Crash] = []
    async with open_supervisor(random.Random(1), crashes.append) as supervisor:
        Authenticator([broken, sound]).start(supervisor)
        await trio.sleep(3_600)
        assert broken.started > 10
        assert all(isinstance(each.error, ConnectionError) for each in crashes)
        assert {each.name for each in crashes} == {"security-0"}
        assert sound.started == 1
        for name in ("security-0", "security-1"):
            await supervisor.stop(name, grace_s=0)
