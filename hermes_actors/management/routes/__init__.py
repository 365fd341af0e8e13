"""The routes of the REST API. Each decodes a request, calls a part of management, and answers."""
