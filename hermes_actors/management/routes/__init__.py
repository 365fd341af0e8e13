"""The routes of the REST API: each reads a request, hands it over, and answers."""
