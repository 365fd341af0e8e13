"""Where the producer's batches come from."""

from hermes_actors.log.batching import RECORD_OVERHEAD_BYTES, Batch, Batcher

__all__ = ["RECORD_OVERHEAD_BYTES", "Batch", "Batcher"]
