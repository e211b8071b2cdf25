"""Packet capture on any port of a fabric: mmap rings in, one pcapng file out.

Owns rings (`ring.py`), the file format (`pcapng.py`) and a running capture (`session.py`). Refuses to change the
kernel's state and to know topologies: a tap is a namespace path, an interface and a label. Read `session.py` first.
"""
