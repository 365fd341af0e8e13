"""`hermes sizing`: how many nodes, how much Kafka and which Helm values a load needs."""
