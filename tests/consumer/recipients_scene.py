"""Recipients of tests, and stand-ins for name servers and registries."""

import msgspec
import trio

from hermes_actors.consumer.senders.sender import SendOutcome, parse_lines
from hermes_actors.model.subscription import DeliveryMode

OK = SendOutcome(200)
LIST = "http://a/in;http://b/in;http://c/in"
DNS = {"resolve": "dns"}


def where(push):
    return push.route.origin.address or push.route.origin.host


def headers_of(push):
    return {name.decode(): value.decode() for name, value in parse_lines(push.lines)}


def hosts(world, body=None):
    return [where(push) for push in world.sender.pushes if body in (None, push.body)]


def broadcast(world, endpoint=LIST, **fields):
    return world.live(endpoint=endpoint, mode=DeliveryMode.BROADCAST, **fields)


def with_parts(world, **parts):
    world.parts = msgspec.structs.replace(world.parts, **parts)
    return world


class Script:
    """Answers by host: each has its list of outcomes, then always 200."""

    def __init__(self, **outcomes):
        self.outcomes = {host: list(each) for host, each in outcomes.items()}

    def __call__(self, push):
        left = self.outcomes.get(where(push), [])
        return left.pop(0) if left else OK


class LookUps:
    """Answers from a table, after `delay_s`."""

    def __init__(self, nursery, delay_s=0.0, **names):
        self.names = names
        self.asked = []
        self._nursery = nursery
        self._delay_s = delay_s

    def resolve(self, host, done):
        self.asked.append(host)
        found = self.names.get(host, OSError("no such host"))
        if not self._delay_s:
            done(found)
            return

        async def later():
            await trio.sleep(self._delay_s)
            done(found)

        self._nursery.start_soon(later)


class Resolver:
    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    def resolve(self, asked):
        self.asked.append(asked)
        found = self.answer(asked)
        return found[0] if isinstance(found, list) else found

    def resolve_all(self, asked):
        self.asked.append(asked)
        return self.answer(asked)

    async def run(self):
        """Nothing to keep fresh."""
