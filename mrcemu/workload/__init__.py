"""What applications do with the transport: sans-IO, so that the same workload runs on raw sockets and in `sim`.

A workload posts writes on a `Nic` and reacts to its events. Owns what is sent and whether it arrived intact. Refuses
time and placement of hosts: the runner says when and where.
"""
