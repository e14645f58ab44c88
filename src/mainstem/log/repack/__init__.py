"""Repack: sealed objects of the log are copied into files in which each stream's slices stand together."""
