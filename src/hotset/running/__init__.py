"""Somebody's script, run unedited, with its loaders accelerated where that is proven."""
