"""The timeline of a scenario: fault commands as a user types them, compiled to a sorted list of single actions.

Owns the grammar of `do:` (the same words as the command line) and the expansion of globs, flaps and reboots. Refuses to
act: whoever holds the fabric executes the actions. Needs a topology, because a target that does not exist is an error
before anything is built.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mrcemu.topology.model import Topology
from mrcemu.topology.names import expand_links, expand_ports, expand_switches
from mrcemu.units import parse_fraction, parse_time_ns

# What a compiled timeline may hold; each is one call on the fabric.
VERBS = (
    "link down",
    "link up",
    "link reset",
    "port down",
    "port up",
    "switch down",
    "switch up",
    "switch reboot-begin",
    "switch reboot-end",
)
# Words of the command line that this version cannot execute in a scenario.
NOT_YET = (
    "link loss",
    "link rate",
    "link delay",
    "link corrupt",
    "link blackhole",
    "switch freeze",
)
MIN_FLAP_PERIOD_NS = 10_000_000  # ours, as on the command line: a faster flap would measure the event loop
_MAX_FLAPS = 10_000  # ours: a list longer than this is a slip of the pen, and each flap is two actions

Value = int | float


@dataclass(frozen=True, slots=True)
class FaultAction:
    """One change of the fabric: when (ns since the start of the run), what, and to which existing names."""

    at_ns: int
    verb: str  # one of VERBS
    targets: tuple[str, ...]  # link names, NIC ports ("h3:p5") or switch names, all of one kind
    what: str  # the command as written, for reports


@dataclass(frozen=True, slots=True)
class _Command:
    """A parsed command line before expansion: `link flap A:B --count 3`."""

    verb: str
    pattern: str
    options: Mapping[str, Value]
    text: str


def _count(text: object) -> int:
    if not isinstance(text, str) or not text.isdecimal() or not 1 <= int(text) <= _MAX_FLAPS:
        raise ValueError(f"a whole number from 1 to {_MAX_FLAPS}")
    return int(text)


def _flap_period(text: object) -> int:
    value = parse_time_ns(text)
    if value < MIN_FLAP_PERIOD_NS:
        raise ValueError("a time of at least 10ms, e.g. 200ms")
    return value


def _positive_time(text: object) -> int:
    value = parse_time_ns(text)
    if value == 0:
        raise ValueError("a time above zero, e.g. 200ms")
    return value


_OPTIONS: dict[str, dict[str, Callable[[object], Value]]] = {
    "link down": {},
    "link up": {},
    "link reset": {},
    "link flap": {"--period": _flap_period, "--duty": parse_fraction, "--count": _count},
    "port down": {},
    "port up": {},
    "switch down": {},
    "switch up": {},
    "switch reboot": {"--for": _positive_time},
}
_DEFAULTS: dict[str, dict[str, Value]] = {
    "link flap": {"--duty": 0.5, "--count": 1},
}
_EXPAND = {"link": expand_links, "port": expand_ports, "switch": expand_switches}


def parse_actions(text: str, at_ns: int, topology: Topology) -> tuple[FaultAction, ...]:
    """The actions of one command at a time; ValueError (what is allowed) or UsageError (no such target; the nearest).

    A flap of N cycles is N pairs of down and up: down for duty x period from the start of each period. The link is up
    at the end. A reboot is a begin and, `--for` later, an end.
    """
    command = _parse_command(text)
    kind = command.verb.split()[0]
    targets = _EXPAND[kind](topology, command.pattern)
    return tuple(_compile(command, at_ns, targets))


def compile_timeline(actions: Sequence[FaultAction]) -> tuple[FaultAction, ...]:
    """Actions in time order; those at the same instant keep the order in which they were written."""
    return tuple(sorted(actions, key=lambda action: action.at_ns))


def _parse_command(text: str) -> _Command:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"VERB TARGET [--option value] ({str(error).lower()})") from None
    verb = " ".join(words[:2])
    if verb in NOT_YET:
        raise ValueError(f"{' | '.join(_OPTIONS)} ({verb} is not available in this version)")
    if verb not in _OPTIONS:
        raise ValueError(" | ".join(_OPTIONS))
    if len(words) < 3 or words[2].startswith("--"):
        raise ValueError(f"{verb} TARGET")
    return _Command(verb, words[2], _options(verb, words[3:]), text)


def _options(verb: str, words: list[str]) -> dict[str, Value]:
    known = _OPTIONS[verb]
    usage = f"{verb} TARGET" + "".join(f" {name} VALUE" for name in known)
    values = dict(_DEFAULTS.get(verb, {}))
    given: set[str] = set()
    for position in range(0, len(words), 2):
        name, value = words[position], words[position + 1 : position + 2]
        if name not in known or not value or name in given:
            raise ValueError(usage)
        given.add(name)
        try:
            values[name] = known[name](value[0])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    missing = [name for name in known if name not in values]
    if missing:
        raise ValueError(f"{usage} (missing {', '.join(missing)})")
    return values


def _compile(command: _Command, at_ns: int, targets: tuple[str, ...]) -> Iterator[FaultAction]:
    if command.verb == "link flap":
        yield from _flaps(command, at_ns, targets)
    elif command.verb == "switch reboot":
        yield FaultAction(at_ns, "switch reboot-begin", targets, command.text)
        yield FaultAction(at_ns + int(command.options["--for"]), "switch reboot-end", targets, command.text)
    else:
        yield FaultAction(at_ns, command.verb, targets, command.text)


def _flaps(command: _Command, at_ns: int, targets: tuple[str, ...]) -> Iterator[FaultAction]:
    period_ns, duty = int(command.options["--period"]), command.options["--duty"]
    down_ns = round(period_ns * duty)
    if not 0 < down_ns < period_ns:
        raise ValueError("--duty: a share of the period down, above 0% and below 100%")
    for cycle in range(int(command.options["--count"])):
        start_ns = at_ns + cycle * period_ns
        yield FaultAction(start_ns, "link down", targets, command.text)
        yield FaultAction(start_ns + down_ns, "link up", targets, command.text)
