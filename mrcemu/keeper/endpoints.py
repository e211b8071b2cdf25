"""Verbs of a keeper that need endpoints: traffic, probes, and the paths of what runs.

Owns the table of those verbs and the endpoints they start on demand; transfers.py, probing.py and pathops.py do them.
Refuses scenarios: those are the runner's, who hands its own endpoints in so that the verbs see them too.
"""

from __future__ import annotations

from mrcemu.endpoint.group import EndpointGroup
from mrcemu.keeper.hosts import Hosts
from mrcemu.keeper.keeper import Keeper
from mrcemu.keeper.pathops import PathOps
from mrcemu.keeper.probing import Probing
from mrcemu.keeper.transfers import Transfers


class EndpointService:
    """Registers the verbs with a keeper. `of_run`: the endpoints of a run in progress on the same fabric."""

    def __init__(self, keeper: Keeper, of_run: EndpointGroup | None = None) -> None:
        self._hosts = Hosts(keeper.net, of_run)
        transfers, probing, paths = Transfers(self._hosts), Probing(self._hosts), PathOps(self._hosts)
        for verb, handler in (
            ("bw", transfers.bw),
            ("lat", transfers.lat),
            ("probe", probing.probe),
            ("trace", probing.trace),
            ("connections", paths.connections),
            ("ev deny", paths.deny),
            ("ev allow", paths.allow),
            ("ev watch", paths.watch),
        ):
            keeper.register(verb, handler)

    async def stop(self) -> None:
        """End the endpoints started on demand."""
        await self._hosts.stop()
