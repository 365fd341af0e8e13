"""The balancers: who runs what and why, and what administrators ask of them."""
