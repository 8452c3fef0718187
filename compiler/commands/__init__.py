"""One module a command: calls the pipeline, prints, returns the exit status."""
