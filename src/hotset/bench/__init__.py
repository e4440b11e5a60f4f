"""The published comparisons: ratios to a baseline in the same run, and exact counts."""
