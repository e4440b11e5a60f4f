"""The machine while a loop runs: processor, memory, storage, GPUs."""
