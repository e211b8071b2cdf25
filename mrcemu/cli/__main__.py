"""`python -m mrcemu.cli` is the `mrcemu` executable."""

from mrcemu.cli.main import main

main()
