"""Generates documentation pages from the code, so that they always match it."""
