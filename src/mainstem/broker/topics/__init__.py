"""Topics: creation, settings, retention, deletes, and what a partition holds."""
