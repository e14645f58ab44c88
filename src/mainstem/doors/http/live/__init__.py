"""Live reads: watches over SSE and WebSocket."""
