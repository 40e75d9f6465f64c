"""`python -m ostinato` is the command line."""

from .cli import main

main()
