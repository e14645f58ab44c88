"""Other projects' test suites and programs, run against a server of this checkout (`make test-outside`)."""
