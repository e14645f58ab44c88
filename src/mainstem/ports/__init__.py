"""All input and output goes through these; tests replace them."""
