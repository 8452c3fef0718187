"""The rules of torchtitan, one a file."""
