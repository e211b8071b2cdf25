"""The event loop of a worker process: sleep until something is due, then step hosts.

Owns pacing. Frames are released in ticks (`TICK_SHARE` of base RTT) counted from the last release, so a lone frame is
on time; arrivals wake nothing while packets fly: every frame is held for longer than a tick. When nothing is due for
longer it waits in epoll. The garbage collector is frozen and off: per-packet objects have no cycles.
"""

from __future__ import annotations

import gc
import select
import time
from collections.abc import Callable

from mrcemu.endpoint.clock import RunClock
from mrcemu.endpoint.host import TICK_SHARE, HostEndpoint

IDLE_WAIT_NS = 50_000_000
# Below this the loop sleeps; above, it waits in epoll, whose timeout is in whole milliseconds.
SLEEP_BELOW_NS = 2_000_000
# While packets fly, carrier and control channel are looked at this often.
POLL_EVERY_NS = 1_000_000


class EndpointLoop:
    """Runs hosts and a control channel until told to stop."""

    def __init__(self, clock: RunClock) -> None:
        self._clock = clock
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._hosts: list[HostEndpoint] = []
        self._tick_ns = 400_000
        self._timers: list[tuple[int, Callable[[int], None]]] = []
        self._stopping = False
        self.steps = 0
        self._released_ns = 0
        self._polled_ns = 0

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        """Call `handler` when `fd` is readable."""
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def add_host(self, host: HostEndpoint, base_rtt_ns: int) -> None:
        """Run one more host; the tick follows its base RTT."""
        self._hosts.append(host)
        self._tick_ns = int(base_rtt_ns * TICK_SHARE)
        for port in host.ports:
            self._epoll.register(port.fileno(), select.EPOLLIN)  # only to end a long wait: `step` reads the rings
        self.watch(host.carrier.fileno(), host.on_carrier_readable)

    def at(self, due_ns: int, action: Callable[[int], None]) -> None:
        """Call `action(now_ns)` once, at a time of the run clock."""
        self._timers.append((due_ns, action))

    def stop(self) -> None:
        self._stopping = True

    def run(self) -> None:
        """Until `stop`; the collector is off meanwhile."""
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            while not self._stopping:
                self._step()
                self._wait()
        finally:
            gc.enable()

    def _poll(self, timeout_s: float) -> None:
        handlers = self._handlers
        for fd, _ in self._epoll.poll(timeout_s, 256):
            handler = handlers.get(fd)
            if handler is not None:
                handler()

    def _step(self) -> None:
        self.steps += 1
        now_ns = self._clock.now_ns()
        if self._timers:
            due = [timer for timer in self._timers if timer[0] <= now_ns]
            for timer in due:
                self._timers.remove(timer)
                timer[1](now_ns)
        for host in self._hosts:
            if host.step(now_ns):
                self._released_ns = now_ns

    def _next_due_ns(self, now_ns: int) -> int:
        due = now_ns + IDLE_WAIT_NS
        for host in self._hosts:
            host_due = host.next_due_ns()
            if host_due is not None and host_due < due:
                due = host_due
        for timer_due, _ in self._timers:
            due = min(due, timer_due)
        return due

    def _wait(self) -> None:
        now_ns = self._clock.now_ns()
        delta = max(self._next_due_ns(now_ns), self._released_ns + self._tick_ns) - now_ns
        if delta <= 0:
            return
        if delta > SLEEP_BELOW_NS:
            self._poll((delta // 1_000_000 - 1) / 1000)
            return
        time.sleep(delta / 1e9)
        if now_ns - self._polled_ns > POLL_EVERY_NS:
            self._polled_ns = now_ns
            self._poll(0)
