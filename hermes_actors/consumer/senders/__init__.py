"""How a push reaches an endpoint."""
