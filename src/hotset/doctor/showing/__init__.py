"""A report in words, as plain values, as a page, and as a trace."""
