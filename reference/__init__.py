"""The plain model in one process: what every layout is compared with.

Written apart from the runtime and the templates, and it imports neither, so that a mistake there
is not repeated here. It is itself held against `transformers`.
"""
