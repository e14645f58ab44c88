"""Programs of others against a server of ours: each module has a `main()` that returns an exit status."""
