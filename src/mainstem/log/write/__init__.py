"""The write path: append requests, commit groups, syncs, delivery."""
