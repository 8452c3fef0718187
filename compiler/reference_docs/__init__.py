"""The pages of `docs/` that follow from the code: the language reference, what commands
print, and the grammar of the editor extension.

`python -m parlay.compiler.reference_docs` rewrites them in the folder `docs` of a checkout; with
`--check` it changes nothing and fails where one of them differs.
"""
