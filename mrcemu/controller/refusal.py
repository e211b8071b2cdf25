"""The one error of the controller face: what was found, what is allowed, and the errno a C caller would see."""

from __future__ import annotations

import errno as errno_codes

from mrcemu.errors import MrcEmuError


class ControlError(MrcEmuError, ValueError):
    """A controller call that cannot be done.

    `errno` is EINVAL, E2BIG, ENOENT, EBUSY, EPERM or EIO with the meanings of mrc_ctl.h; `key` names the argument.
    """

    exit_code = 2

    def __init__(self, errno: int, key: str, found: object, allowed: str) -> None:
        super().__init__(f"{errno_codes.errorcode[errno]}: {key}: found {found}; allowed: {allowed}")
        self.errno = errno
        self.key = key
        self.found = str(found)
        self.allowed = allowed


def require_range(key: str, value: int, low: int, high: int, too_big: int = errno_codes.EINVAL) -> None:
    """ControlError unless `value` is an integer in [low, high]: errno `too_big` above, EINVAL otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        above = isinstance(value, int) and value > high
        raise ControlError(too_big if above else errno_codes.EINVAL, key, repr(value), f"{low} to {high}")
