"""The log as a whole: opening, backup, migration, repair, the storage map."""
