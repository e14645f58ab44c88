"""Topics as tables: the Iceberg catalog, planning of the lake, publication, garbage."""
