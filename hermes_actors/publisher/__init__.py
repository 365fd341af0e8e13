"""Takes messages in over HTTP, appends them to the log, and answers each publisher exactly once.

The way of a message: an edge (HTTP) → Gateway (checks, hand-over) → TopicProducer (batches,
append) → the reply back to the edge. Deadlines answers what takes too long, Routes keep a
producer for each live topic, Drain takes the whole down gracefully.
"""
