"""What a loader's batches take, part by part, outside of its loop."""
