"""Somebody's script, run unedited, with its loaders recorded."""
