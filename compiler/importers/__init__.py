"""Other formats, read: Hugging Face `config.json` to a model's values."""
