"""Samples on disk: the deterministic part of a chain, run once; checked and memory-mapped."""
