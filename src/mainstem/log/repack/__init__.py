"""Repack: copy sealed objects of the log into files in which each stream's slices are contiguous."""
