"""Topics as tables: the Iceberg catalog, the lake's plans, the files of parts, publication, garbage."""
