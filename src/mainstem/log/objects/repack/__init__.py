"""Repacking: copies live slices into files in which the slices of a stream are contiguous."""
