"""`python -m trimtab.cli` is the `trimtab` command."""

from trimtab.cli import main

main()
