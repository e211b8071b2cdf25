"""The MRC transport without a computer: frames, time and randomness come in as arguments, frames and events go out.

Read `nic.py` for the call contract, then `qp.py` (routing), `requester.py`, `responder.py`, `ev.py`. Each rule of the
protocol lives in one module; docs/protocol.md maps rules to modules and tests.
"""
