"""What nodes use, as measured; each figure is one run. docs/sizing.md names the commands."""

from typing import Literal, NamedTuple

MEASURED_ON = "2 cores of an AMD EPYC, shared with other work, Kafka 4.1 beside it, no TLS"
FACTOR = 1.5
"""Every measured figure is multiplied by it."""

KIB, MIB, GIB = 2**10, 2**20, 2**30


class Cost(NamedTuple):
    """CPU of a message: µs whatever its size, and µs for each KiB."""

    fixed_us: float
    kib_us: float

    def cores(self, per_s: float, size_bytes: float) -> float:
        """Cores that so many messages a second take."""
        return FACTOR * per_s * (self.fixed_us + self.kib_us * size_bytes / KIB) / 1e6


Publishing = Literal["single", "batch", "grpc"]
PUBLISH: dict[Publishing, Cost] = {
    "single": Cost(71, 8.3),
    "batch": Cost(1, 8.6),
    "grpc": Cost(134, 8.3),
}
"""On Kafka: HTTP/1.1 requests, batches, gRPC streams with a message in each frame."""
DELIVER = Cost(66, 3)
"""Of a busy subscription, whose node reads many messages at once."""
LONE_PUBLISH, LONE_DELIVER = Cost(150, 0), Cost(200, 0)
"""In addition, of a message that shares no batch of Kafka with others of its topic."""
LONE_PER_S = 50
"""Of a topic or subscription on a node. What comes beyond this rate shares batches."""
FIRST_PUBLISH, FIRST_PER_S = Cost(200, 0), 600
"""In addition, of a frontend's first lone messages/s. Beyond, topics share requests to Kafka."""
TASK_CORES = 0.0005
"""Of a subscription without messages, on a node that delivers it."""
BASE_CORES = 0.05
"""Of a node with few messages."""

BASE_BYTES = 120 * MIB
TOPIC_BYTES, TASK_BYTES, CONNECTION_BYTES = 52 * KIB, 120 * KIB, 10 * KIB
"""Of a topic, of a subscription on a node that delivers it, and of a connection in use."""
SPOOLED_BYTES, HELD_BYTES = 300, 2 * KIB
"""Memory of a message in the spool, and of one that waits for a retry, beside its body."""
RECORD_BYTES, ENTRY_BYTES = 128, 238
"""Of a message in Kafka and in the spool's files, beside its body."""
