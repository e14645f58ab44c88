"""The text door: length-prefixed text commands over TCP, for minimal clients."""
