"""The text door: framed words over TCP, the smallest client there is."""
