"""Whether data holds a training loop back, where, and what would help."""
