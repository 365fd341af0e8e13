"""Groups, topics, subscriptions and what else there is: made, changed and removed by rules."""
