"""Objects of the log: checkpoints, sealing, tiering, repacking, backup, migration."""
