"""The sample as a tree of leaves, its schema, its storage in columns, and collating."""
