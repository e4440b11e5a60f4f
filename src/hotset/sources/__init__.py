"""Where samples come from: what a dataset is, which of its steps run once, and reading it whole."""
