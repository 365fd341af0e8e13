"""What a run's cluster is asked to do: by publishers, and by the people who administer it."""
