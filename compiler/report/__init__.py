"""The page of a job: one HTML file for whoever decides on a layout.

Plain data goes in, a ledger and the documents of `--json`; the templates print it.
"""

from parlay.compiler.report.page import page, picture
from parlay.compiler.report.part import Part, Subject, part

__all__ = ["Part", "Subject", "page", "part", "picture"]
