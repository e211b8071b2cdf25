"""The privileged face of a NIC: EV format profiles, EV profiles, EV events, device limits; named as in mrc_ctl.h.

Start with `controller.py` (the calls), then `profiles.py` and `lifecycle.py` (what is allowed when). Sans-IO like the
transport below it: no sockets, no clock; whoever owns a NIC passes transitions in and takes commands for its QPs out.
"""
