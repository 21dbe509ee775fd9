"""`python -m lowtide.cli` is `lowtide`."""

from lowtide.cli import main

main()
