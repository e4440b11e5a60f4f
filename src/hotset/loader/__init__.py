"""Loaders: from a dataset and an order to batches on the device."""
