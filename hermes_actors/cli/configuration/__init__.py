"""`hermes apply`, `hermes export`, `hermes metadata`: the configuration as files."""
