"""The language: text to tree and back. Knows nothing of GPUs."""
