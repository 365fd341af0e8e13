"""`hermes group`, `hermes topic`, `hermes oauth-provider`: what there is to subscribe to."""
