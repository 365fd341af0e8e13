"""The work of a run's cluster: asked for by publishers, and by the people who administer it."""
