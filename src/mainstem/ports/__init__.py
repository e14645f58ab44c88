"""Ports: all input and output goes through these, and tests replace them."""
