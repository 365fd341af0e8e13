"""GraphQL at /graphql: a thin layer over the parts that the REST routes call."""
