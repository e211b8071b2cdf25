"""SIGINT, SIGTERM and SIGHUP during a run: counted and forwarded, never thrown into the middle of something.

An exception at an arbitrary line could leave a namespace without a record. So a signal only counts here; whoever builds
or waits looks at the count where it is safe to stop, or is called on the event loop. Refuses to decide what a signal
means: engine.py does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """As a context manager, catches `SIGNALS` until it ends; a signal that was ignored (nohup) stays ignored.

    Outside the main thread, where Python takes no signal handlers, it catches nothing.
    """

    def __init__(self) -> None:
        self.count = 0
        self._forward: Callable[[], object] | None = None
        self._old: list[tuple[signal.Signals, Any]] = []

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                old = signal.getsignal(number)
                if old is not signal.SIG_IGN:
                    signal.signal(number, self._catch)
                    self._old.append((number, old))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, old in self._old:
            signal.signal(number, old)
        self._old.clear()

    def _catch(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._forward is not None:
            self._forward()

    def forward_to(self, callback: Callable[[], object] | None) -> None:
        """Call this at every signal from now on, between any two lines of the main thread; None ends it."""
        self._forward = callback

    def clear(self) -> None:
        """Forget the signals so far: they were meant for something that is over."""
        self.count = 0

    def raise_if_any(self) -> None:
        """KeyboardInterrupt if a signal came; for places where stopping is safe."""
        if self.count:
            raise KeyboardInterrupt
