"""HTTP connections: parsing, routing, authentication, responses."""
