"""The command line: `main.py` holds the table of commands and the exit codes, one small module each group of commands.

Command modules import what they need inside their functions, so that `mrcemu --help` does not load a fabric.
"""
