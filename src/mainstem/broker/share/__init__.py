"""Share groups: consumers that read the same partitions, each record by one of them at a time (KIP-932)."""
