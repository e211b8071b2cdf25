"""Which standing fabric a command means, and how to reach it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrcemu.errors import UsageError

if TYPE_CHECKING:
    from mrcemu.fabric.journal import Journal
    from mrcemu.keeper.verbs import Emit
    from mrcemu.topology.model import Topology


@dataclass(frozen=True, slots=True)
class StandingFabric:
    """A recorded fabric: everything but its kernel state comes from the record."""

    journal: Journal

    @property
    def name(self) -> str:
        return self.journal.name

    @property
    def directory(self) -> Path:
        return self.journal.directory

    @property
    def topology(self) -> Topology:
        return self.journal.plan.topology

    def netns_path(self, node: str) -> str:
        """Path of a node's namespace; UsageError lists the nearest nodes."""
        from mrcemu.fabric.namespaces import path_of  # noqa: PLC0415
        from mrcemu.topology.names import nearest  # noqa: PLC0415

        found = self.journal.plan.namespaces
        if node not in found:
            raise UsageError(f"no node {node!r} in {self.name}", nearest(node, tuple(found)))
        return path_of(found[node])

    def ask(
        self,
        verb: str,
        targets: Sequence[str] = (),
        args: Mapping[str, Any] | None = None,
        on_event: Emit | None = None,
    ) -> dict[str, Any]:
        """One request to its keeper; see `keeper.client.ask`."""
        from mrcemu.keeper.client import ask  # noqa: PLC0415

        return ask(self.directory, verb, targets, args, on_event)


def choose(name: str | None) -> StandingFabric:
    """The fabric of that name, or the only one that stands; UsageError if none or several stand."""
    from mrcemu.fabric.journal import list_standing, open_existing  # noqa: PLC0415

    if name is not None:
        return StandingFabric(open_existing(name))
    names = [standing.name for standing in list_standing()]
    if not names:
        raise UsageError("no fabric stands; build one first: sudo mrcemu up eight-plane")
    if len(names) > 1:
        raise UsageError(f"several fabrics stand, say which one with its name: {', '.join(names)}")
    return StandingFabric(open_existing(names[0]))
