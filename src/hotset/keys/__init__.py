"""What a cache on disk was made from, as digests: values, code, files, and why they differ."""
