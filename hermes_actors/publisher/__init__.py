"""Takes messages in over HTTP, appends them to the log, and answers each publisher exactly once.

A message goes from an edge (HTTP) to the Gateway (checks, hand-over), to its TopicProducer
(batches, append), and the answer goes back to the edge. Deadlines answers what takes too long,
Routes keeps a producer for each live topic, and Drain shuts all of it down gracefully.
"""
