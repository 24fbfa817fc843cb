"""`python -m shared.console` is the `shoal` command."""

from shared.console.main import main

main()
