"""From a `.par` file to a checked plan and its files."""
