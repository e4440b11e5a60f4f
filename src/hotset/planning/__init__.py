"""What would be done to a loader, and what that would gain, without doing it."""
