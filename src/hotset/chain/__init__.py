"""What a transform chain is made of, and what is to happen to each of its steps."""
