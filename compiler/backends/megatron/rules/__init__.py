"""The rules of Megatron-LM, one a file."""
