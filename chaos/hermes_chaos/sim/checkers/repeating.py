"""Promises to publishers with an idempotency key."""

from collections import defaultdict
from itertools import combinations

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import Event, Published

_OTHER_PAYLOAD = 422


class IdempotencyIsKept(Checker):
    """One key and topic give one message id, on every node and after restarts.

    Within one life of a node, repeating an acknowledged message is acknowledged too; another
    message under its key gets 422; and 409 comes only while the first request is under way.
    Examined are pairs of requests under one key to which one of these rules applies.
    """

    name = "idempotency is kept"

    def __init__(self) -> None:
        super().__init__()
        self._by_key: dict[tuple[str, str], list[Published]] = defaultdict(list)

    def watch(self, event: Event) -> None:
        """Note the event; `finish` judges."""
        match event:
            case Published() if event.idempotency_key and event.status is not None:
                self._by_key[event.topic, event.idempotency_key].append(event)
            case _:
                pass

    def finish(self) -> None:
        """Judge what is only known at the end."""
        for (topic, key), requests in self._by_key.items():
            requests.sort(key=lambda each: each.began_s)
            ids = {each.message_id for each in requests if each.is_acknowledged}
            if len(ids) > 1:
                self.violations.append(f"{key} of {topic} was acknowledged as {sorted(ids)}")
            for first, second in combinations(requests, 2):
                self._check(key, first, second)

    def _check(self, key: str, first: Published, second: Published) -> None:
        status = second.status
        assert status is not None, "those without an answer were left out"
        is_alike = first.body == second.body
        if first.life != second.life:
            # The new life knows nothing of the first request except its id.
            self.examined += first.is_acknowledged and second.is_acknowledged
            return
        if first.ended_s >= second.began_s:
            self.examined += 1
            both = first.is_acknowledged and second.is_acknowledged
            is_right = status != _OTHER_PAYLOAD if is_alike else not both
        elif first.is_acknowledged and status < 500:
            self.examined += 1
            is_right = second.is_acknowledged if is_alike else status == _OTHER_PAYLOAD
        else:
            return
        if not is_right:
            self.violations.append(
                f"{key}: message {second.serial} at {second.began_s:.3f} was answered {status} by "
                f"{second.life} after {'the same' if is_alike else 'another'} message "
                f"{first.serial}, answered {first.status} at {first.ended_s:.3f}"
            )
