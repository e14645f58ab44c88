"""The commit path, the read path, recovery and checkpoints."""
