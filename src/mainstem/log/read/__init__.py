"""The read path: index, extents, parts, visibility, losses."""
