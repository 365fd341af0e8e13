"""HTTP for all routes: bodies, answers, checks before each route, and the OpenAPI document."""
