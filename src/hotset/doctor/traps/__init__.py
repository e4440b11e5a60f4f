"""Known traps that a loader may be in."""
