"""Ad-hoc SQL over topics with DuckDB, in a child process of the broker.

The broker parses nothing and reads nothing: it checks who may read a topic, and tells the child where the records are.
"""
