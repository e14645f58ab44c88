"""`df.write` and `df.writeStream` of `format("mainstem")`."""
