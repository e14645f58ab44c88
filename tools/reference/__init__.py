"""Pages of the documents that are made from the code, so that they cannot disagree with it."""
