"""`hermes group`, `hermes topic`, `hermes oauth-provider`: objects of the management API."""
