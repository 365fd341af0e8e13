"""A sender with scripted answers."""

import trio

from hermes_actors.consumer.senders.sender import Sender, SendOutcome

OK = SendOutcome(200)


class ScriptedSender(Sender):
    """Answers as `script(push)` says: an outcome, (delay in s, outcome), or None for no answer."""

    def __init__(self, nursery, script):
        self.script = script
        self.pushes = []
        self.times_s = []
        self.unanswered = []
        self.inflight = 0
        self.inflight_high = 0
        self._nursery = nursery

    def send(self, push, done):
        self.pushes.append(push)
        self.times_s.append(trio.current_time())
        self.inflight += 1
        self.inflight_high = max(self.inflight_high, self.inflight)
        answer = self.script(push)
        if answer is None:
            self.unanswered.append(done)
            return
        delay_s, outcome = answer if isinstance(answer, tuple) else (0.0, answer)
        self._nursery.start_soon(self._answer, delay_s, outcome, done)

    async def _answer(self, delay_s, outcome, done):
        await trio.sleep(delay_s)
        self.inflight -= 1
        done(outcome)

    @property
    def bodies(self):
        return [push.body for push in self.pushes]
