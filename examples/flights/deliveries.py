"""Follows the subscribers' files: what was accepted so far, and when."""

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class DeliveryFile:
    """One subscriber's file, read while it grows. Times are wall-clock milliseconds."""

    name: str
    path: Path
    accepted: int = 0
    failed: int = 0
    retried: int = 0
    first_accepted_ms: dict[str, int] = field(default_factory=dict)
    _offset: int = 0
    _rest: bytes = b""

    @property
    def delivered(self) -> int:
        """The number of different messages accepted."""
        return len(self.first_accepted_ms)

    @property
    def duplicates(self) -> int:
        """The number of accepted deliveries of messages that were accepted before."""
        return self.accepted - self.delivered

    def read_on(self) -> None:
        """Read what was written since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, delivery: dict[str, object]) -> None:
        status, received_ms = delivery["status"], delivery["receivedMs"]
        assert isinstance(status, int)
        assert isinstance(received_ms, int)
        self.retried += delivery["retryCount"] != 0
        if 200 <= status < 300:
            self.accepted += 1
            self.first_accepted_ms.setdefault(str(delivery["messageId"]), received_ms)
        else:
            self.failed += 1

    def latencies_ms(self, sent_ms: dict[str, int]) -> list[float]:
        """From the first attempt to publish to the first accepted delivery, ascending."""
        return sorted(
            float(received_ms - sent_ms[message_id])
            for message_id, received_ms in self.first_accepted_ms.items()
            if message_id in sent_ms
        )
