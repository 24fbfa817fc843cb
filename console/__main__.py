"""`python -m console` is the `shoal` command."""

from console.main import main

main()
