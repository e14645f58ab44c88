"""The schema registry: what its calls mean, and the checks of payloads that topics ask for."""
