"""The fabric as data: what exists (model), how it is addressed (addressing), how long a path takes (timing).

Knows no computer. Loaders take text. Read `model.py` first.
"""
