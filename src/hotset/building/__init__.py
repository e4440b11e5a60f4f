"""From a dataset to a store on disk: its recipe and its place, writing it, mending it."""
