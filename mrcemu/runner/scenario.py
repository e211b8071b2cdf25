"""Scenario file text to a frozen, fully checked `Scenario`: nothing is built before everything in it is known to exist.

Owns the scenario's keys and what this version offers of them. Refuses paths (the text of the topology comes through a
callable) and acting. Read `load_scenario` first.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from mrcemu.capture.targets import taps_for
from mrcemu.errors import UsageError
from mrcemu.runner.expect import Expectation, parse_expectation
from mrcemu.runner.grammar import ExpectError, Scope
from mrcemu.runner.settings import SETTINGS, parse_setting
from mrcemu.runner.timeline import FaultAction, compile_timeline, parse_actions
from mrcemu.runner.workloads import WorkloadFile, WorkloadSpec, available, checked_workloads, refuse_later_kinds
from mrcemu.schema import Document, FileModel, TimeNs, apply_overrides, auto_or, parse_yaml, validate, whole
from mrcemu.topology.ecmp import ECMP, SRV6, Forwarding
from mrcemu.topology.loader import load_topology
from mrcemu.topology.model import Topology

TRANSPORTS = ("mrc",)
TRANSPORTS_NOT_YET = ("roce",)
MAX_EVS = 256  # an EV profile's largest explicit list (ours; the paper runs 128 to 256 paths a QP)
MAX_QPS = 64
DEFAULT_SEED = 1
TOPOLOGY_PREFIX = "topology."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True, slots=True)
class TransportSpec:
    """How hosts talk. `evs` is the number of paths a QP knows, None for every distinct path up to 256.

    In ECMP mode, where nobody can tell paths apart, None is what `topology.ecmp` gives.
    """

    kind: str = "mrc"
    qps: int = 1
    evs: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # `TransportConfig` field -> value, those given

    @property
    def forwarding(self) -> Forwarding:
        return ECMP if self.settings.get("forwarding") == ECMP else SRV6


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run, completely described and checked."""

    name: str
    about: str
    file: str
    seed: int
    topology: Topology
    topology_file: str
    transport: TransportSpec
    capture: tuple[str, ...]  # names and globs as written, each known to match something
    workload: tuple[WorkloadSpec, ...]
    timeline: tuple[FaultAction, ...]  # in time order
    expect: tuple[Expectation, ...]
    inputs: Mapping[str, Any]  # the scenario as read, overrides applied: for the results folder

    @property
    def duration_ns(self) -> int:
        """From the start of the run to the end of its last workload."""
        return max(w.end_ns for w in self.workload)


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("at most 80 of letters, digits and . _ - (it names the results folder)")
    return value


def _commands(value: object) -> list[str]:
    commands = [value] if isinstance(value, str) else value
    if not isinstance(commands, list) or not commands or not all(isinstance(c, str) for c in commands):
        raise ValueError("a command such as 'switch down p2-t1-1', or a list of them")
    return commands


def _evs(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_EVS:
        raise ValueError(f"a whole number from 1 to {MAX_EVS}")
    return value


class TransportFile(FileModel):
    """`transport`; settings beside kind, qps and evs are checked by settings.py."""

    model_config = FileModel.model_config | {"extra": "allow"}

    kind: Annotated[str, available(TRANSPORTS, TRANSPORTS_NOT_YET)] = "mrc"
    qps: Annotated[int, whole(1, MAX_QPS)] = 1
    evs: Annotated[int | None, auto_or(_evs)] = None


class FaultFile(FileModel):
    """One item of `timeline`."""

    at: TimeNs
    do: Annotated[list[str], BeforeValidator(_commands)]


class ScenarioFile(FileModel):
    """A scenario file, key by key."""

    name: Annotated[str, BeforeValidator(_name)]
    about: str = ""
    topology: str
    seed: Annotated[int, whole(0, (1 << 63) - 1)] = DEFAULT_SEED
    transport: TransportFile = Field(default_factory=TransportFile)
    capture: list[str] = Field(default_factory=list)
    workload: list[WorkloadFile]
    timeline: list[FaultFile] = Field(default_factory=list)
    expect: list[str] = Field(default_factory=list)


def load_scenario(
    text: str, file: str, read: Callable[[str], str], overrides: Sequence[str] = ()
) -> Scenario:  # fmt: skip
    """A scenario file's text as a checked `Scenario`; ConfigError for the first thing that is wrong or does not exist.

    `read` returns the text of a topology file, given its path (relative to the folder of `file`, already joined), or
    raises OSError. `overrides` are `KEY=VALUE` with dotted keys; those that start with `topology.` go to the topology.
    """
    ours = [item for item in overrides if not item.startswith(TOPOLOGY_PREFIX)]
    document = apply_overrides(parse_yaml(text, file=file), ours)
    refuse_later_kinds(document)
    model = validate(document, ScenarioFile)
    topology_file = posixpath.join(posixpath.dirname(file), model.topology)
    topology = load_topology(_read(read, topology_file, model, document), topology_file, _topology_overrides(overrides))
    workload = checked_workloads(model.workload, topology, document)
    return Scenario(
        name=model.name,
        about=model.about,
        file=file,
        seed=model.seed,
        topology=topology,
        topology_file=topology_file,
        transport=_transport(model.transport, document),
        capture=_capture(model, topology, document),
        workload=workload,
        timeline=_timeline(model, topology, workload, document),
        expect=_expectations(model, topology, workload, document),
        inputs=document.data,
    )


def _topology_overrides(overrides: Sequence[str]) -> list[str]:
    return [item.removeprefix(TOPOLOGY_PREFIX) for item in overrides if item.startswith(TOPOLOGY_PREFIX)]


def _read(read: Callable[[str], str], path: str, model: ScenarioFile, document: Document) -> str:
    try:
        return read(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        allowed = "a topology file, relative to the scenario"
        raise document.error(("topology",), f"{model.topology} ({path}: {reason})", allowed) from None


def _transport(model: TransportFile, document: Document) -> TransportSpec:
    settings: dict[str, Any] = {}
    for key, value in (model.model_extra or {}).items():
        place = ("transport", key)
        if key not in SETTINGS:
            known = ", ".join([*TransportFile.model_fields, *SETTINGS])
            raise document.error(place, f"the unknown key {key!r}", known)
        try:
            name, parsed = parse_setting(key, value)
        except ValueError as error:
            raise document.error(place, value, str(error)) from None
        settings[name] = parsed
    return TransportSpec(model.kind, model.qps, model.evs, settings)


def _capture(model: ScenarioFile, topology: Topology, document: Document) -> tuple[str, ...]:
    for index, target in enumerate(model.capture):
        try:
            taps_for(topology, [target], lambda node: node)
        except UsageError as error:
            raise _no_target(document, ("capture", index), error, target) from None
    return tuple(model.capture)


def _no_target(document: Document, path: tuple[str | int, ...], error: UsageError, found: str) -> Exception:
    allowed = f"a name that exists, e.g. {', '.join(error.near)}" if error.near else str(error)
    return document.error(path, f"{found} ({str(error).partition(' (nearest')[0]})" if error.near else found, allowed)


def _timeline(
    model: ScenarioFile, topology: Topology, workload: tuple[WorkloadSpec, ...], document: Document
) -> tuple[FaultAction, ...]:
    end_ns = max(w.end_ns for w in workload)
    actions: list[FaultAction] = []
    for index, item in enumerate(model.timeline):
        path = ("timeline", index)
        if item.at >= end_ns:
            at = document.data["timeline"][index]["at"]
            raise document.error((*path, "at"), at, f"before the end of the run at {end_ns / 10**9:g}s")
        listed = isinstance(document.data["timeline"][index]["do"], list)
        for number, command in enumerate(item.do):
            place = (*path, "do", number) if listed else (*path, "do")
            actions.extend(_actions(command, item.at, topology, document, place))
    return compile_timeline(actions)


def _actions(
    command: str, at_ns: int, topology: Topology, document: Document, place: tuple[str | int, ...]
) -> tuple[FaultAction, ...]:
    try:
        return parse_actions(command, at_ns, topology)
    except UsageError as error:
        raise _no_target(document, place, error, command) from None
    except ValueError as error:
        raise document.error(place, command, str(error)) from None


def _expectations(
    model: ScenarioFile, topology: Topology, workload: tuple[WorkloadSpec, ...], document: Document
) -> tuple[Expectation, ...]:
    scope = Scope(
        {w.id: (w.start_ns, w.end_ns) for w in workload}, topology.planes, max(w.end_ns for w in workload)
    )  # fmt: skip
    parsed: list[Expectation] = []
    for index, text in enumerate(model.expect):
        try:
            parsed.append(parse_expectation(text, scope))
        except ExpectError as error:
            raise document.error(("expect", index), text, str(error)) from None
    return tuple(parsed)
