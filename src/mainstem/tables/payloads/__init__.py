"""Values that name a schema of the registry, as typed columns: one module a schema language."""
