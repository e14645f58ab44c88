"""Read and write the rows of parts. Runs in workers, which have neither a log nor a broker."""
