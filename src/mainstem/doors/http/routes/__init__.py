"""One module per resource. `table.py` binds each route of the contract to its handler."""
