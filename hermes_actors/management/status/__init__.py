"""How nodes, topics and subscriptions fare."""
