"""`python -m gesta`, the same as the command `gesta`."""

from gesta.cli.main import main

main()
