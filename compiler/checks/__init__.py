"""The checks: one rule a file, asked about each phase of a job.

`check_phases` asks them, `degrees_hold` says whether a layout exists, `page` is what `explain`
prints.
"""

from parlay.compiler.checks.degrees import degrees_hold
from parlay.compiler.checks.pages import Page, codes, page, page_of
from parlay.compiler.checks.rules import Rule, all_rules, rule
from parlay.compiler.checks.run import check_phases, subject_of
from parlay.compiler.checks.subject import Subject

__all__ = [
    "Page",
    "Rule",
    "Subject",
    "all_rules",
    "check_phases",
    "codes",
    "degrees_hold",
    "page",
    "page_of",
    "rule",
    "subject_of",
]
