"""The keeper: the one process that changes a fabric after it was built, and the way to ask it.

`keeper.py` is the service, `verbs.py` the table of what it can do, `status.py` what it tells, `protocol.py` its wire,
`client.py` the asking side, `up.py` starting one in the background, `__main__.py` that background process, `prompt.py`
one behind a Mininet prompt. Read `keeper.py` first.
"""
