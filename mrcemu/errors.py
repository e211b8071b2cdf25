"""Every error mrcemu raises on purpose, as one family with attributes instead of prose.

Owns the exit code of each family (the command line's contract). Bytes from a peer never raise past the QP: a
`WireError` is caught and counted where frames enter.
"""

from __future__ import annotations

from collections.abc import Sequence


class MrcEmuError(Exception):
    """Root of all errors mrcemu raises on purpose."""

    exit_code = 1


class WireError(MrcEmuError):
    """A frame that is not what its headers promise.

    `reason` is a short stable word used as the name of a drop counter, e.g. "truncated", "icrc".
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class QpError(MrcEmuError):
    """A misuse of a QP by the application (never by the peer)."""


class UsageError(MrcEmuError):
    """The command line asks for something that does not exist; `near` lists the closest names that do."""

    exit_code = 2

    def __init__(self, message: str, near: Sequence[str] = ()) -> None:
        super().__init__(message + (f" (nearest: {', '.join(near)})" if near else ""))
        self.near = tuple(near)


class ConfigError(MrcEmuError):
    """A file that says something impossible: where, what was found, what is allowed."""

    exit_code = 2

    def __init__(self, *, file: str, line: int | None, key: str, found: str, allowed: str) -> None:
        place = f"{file}:{line}" if line is not None else file
        super().__init__(f"{place}: {key}: found {found}; allowed: {allowed}")
        self.file = file
        self.line = line
        self.key = key
        self.found = found
        self.allowed = allowed


class UnfitEnvironmentError(MrcEmuError):
    """The machine cannot do what was asked: what is missing, and what mends it."""

    exit_code = 3

    def __init__(self, missing: str, fix: str, errno: int | None = None) -> None:
        super().__init__(f"{missing}; fix: {fix}")
        self.missing = missing
        self.fix = fix
        self.errno = errno


class ExpectationFailedError(MrcEmuError):
    """A run finished and an expectation of its scenario does not hold."""

    exit_code = 1


class UntrustworthyRunError(MrcEmuError):
    """A run finished but a fidelity invariant broke, so its figures say nothing about the network."""

    exit_code = 4
