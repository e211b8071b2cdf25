"""A netlink socket in every node's namespace: the hands through which everything after building is done.

Owns the sockets and turns the kernel's refusals into errors that name the operation. Refuses to know any plan.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence

from mrcemu.errors import UnfitEnvironmentError
from mrcemu.fabric import encode, ops
from mrcemu.fabric.netlink import Failure, NetlinkSocket


class Nodes:
    """A netlink socket in every node's namespace."""

    def __init__(self) -> None:
        self._sockets: dict[str, NetlinkSocket] = {}

    def __getitem__(self, node: str) -> NetlinkSocket:
        return self._sockets[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sockets)

    def add(self, node: str, sock: NetlinkSocket) -> None:
        self._sockets[node] = sock

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()

    def run(self, node: str, operations: Sequence[ops.Operation], restore: bool = False) -> None:
        """Do operations inside one node's namespace; UnfitEnvironmentError names the first that is refused.

        With `restore` it is no refusal that something is there already.
        """
        messages, owners = encode.encode_all(operations, restore)
        failures = self._sockets[node].run(messages)
        if restore:
            failures = [failure for failure in failures if failure.errno != errno.EEXIST]
        raise_first(failures, owners)


def raise_first(failures: Sequence[Failure], owners: Sequence[ops.Operation]) -> None:
    """UnfitEnvironmentError for the first refused message, naming its operation and how many others failed."""
    if not failures:
        return
    first = failures[0]
    more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
    raise UnfitEnvironmentError(
        f"the kernel refused {ops.describe(owners[first.index])}: {first.text}{more}",
        "`mrcemu doctor` names the kernel features and rights that are needed",
        first.errno,
    )
