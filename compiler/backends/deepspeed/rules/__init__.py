"""The rules of DeepSpeed, one a file."""
