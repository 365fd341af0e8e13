"""HTTP in front of the gateway: ASGI (hypercorn, tests, simulation) and RSGI (granian)."""
