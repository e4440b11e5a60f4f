"""The demo: one training, through a plain DataLoader and through hotset, measured side by side."""
