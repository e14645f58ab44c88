"""Erasures: remove records and every byte of them, and report what was removed."""
