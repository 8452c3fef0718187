"""`python -m parlay.compiler.cli`: the console script without its being installed."""

from parlay.compiler.cli import main

main()
