"""The emulated network on a real kernel: namespaces, veth pairs, uSID routes, queues; built, broken, healed, removed.

Read in this order: `ops.py` (what can be done), `plan.py` (what a topology needs, as data), `apply.py` (doing it
through netlink), `journal.py` (what stands, on disk), `net.py` (`MrcNet`, the only builder), `faults.py` (links and
switches that fail). `encode.py`, `tc.py` and `readback.py` hold the bytes. Refuses transport, traffic and the
trimming program: those attach to what is built here.
"""
