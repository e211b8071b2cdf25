"""The Mininet prompt on a fabric of its own, with a keeper behind it, so that other terminals can ask as well.

The prompt blocks the main thread; the keeper's event loop runs in a second one. What the prompt changes or reads in
the kernel is therefore handed to that loop: there is one writer, as everywhere.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mininet.cli import CLI

from mrcemu.errors import MrcEmuError
from mrcemu.fabric.net import MrcNet
from mrcemu.fabric.requirements import require
from mrcemu.keeper.endpoints import EndpointService
from mrcemu.keeper.keeper import Keeper
from mrcemu.topology.model import Topology


def open_prompt(topology: Topology, name: str, topology_text: str) -> None:
    """Build, prompt until `exit` or Ctrl-D, remove; SIGTERM (as `mrcemu down` sends it) ends it as well."""
    require()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    net = MrcNet(topology, name=name, topology_text=topology_text)
    try:
        net.build()
        with _keeper_thread(net) as loop:
            Prompt(net, loop)
    finally:
        net.stop()


@contextmanager
def _keeper_thread(net: MrcNet) -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    keeper = Keeper(net)
    service = EndpointService(keeper)
    loop.run_until_complete(keeper.start())
    thread = threading.Thread(target=loop.run_forever, name="keeper")
    thread.start()
    try:
        yield loop
    finally:
        for stopping in (service.stop(), keeper.stop()):
            asyncio.run_coroutine_threadsafe(stopping, loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Prompt(CLI):  # type: ignore[misc]  # Mininet carries no types
    """Mininet's own prompt; commands that touch ports run on the keeper's loop, and an error is one line."""

    prompt = "mrcemu> "

    def __init__(self, net: MrcNet, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        super().__init__(net, stdin=sys.stdin)

    def do_link(self, line: str) -> None:
        """link NODE NODE up|down: all links between two nodes."""
        self._on_loop(super().do_link, line)

    def do_links(self, line: str) -> None:
        """Every link and its state."""
        self._on_loop(super().do_links, line)

    def do_switch(self, line: str) -> None:
        """switch NAME start|stop."""
        self._on_loop(super().do_switch, line)

    def _on_loop(self, command: Callable[[str], None], line: str) -> None:
        async def run() -> None:
            command(line)

        try:
            asyncio.run_coroutine_threadsafe(run(), self._loop).result()
        except MrcEmuError as error:
            print(f"mrcemu: {error}", file=sys.stderr)
