"""From times to a verdict and advice. Pure."""
