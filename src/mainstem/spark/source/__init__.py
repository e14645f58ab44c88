"""`spark.read` and `spark.readStream` of `format("mainstem")`."""
