"""The same transport on a virtual clock: no computer, no waiting, everything from one seed. Read `pair.py` first."""
