"""The only socket code of the data path: raw ports of hosts, one clock, one loop, one process entry.

Owns how frames enter and leave a host and when. Refuses protocol rules: everything decided here is about sockets and
time. Read `loop.py` first, then `host.py`, `ports.py`, `hold.py`; `worker.py` is the process.
"""
