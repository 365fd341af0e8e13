"""The status of nodes: a record of each once a second, and what management makes of them."""
