"""Where the rows come from: Kafka, and embedded logs; both give the common columns."""
