"""The HTTP contract: requests, responses and routes, declared once for the server, its clients and its documents."""
