"""Congestion control as a small family: one interface, one module per algorithm. Read `base.py` first."""
