"""What a machine needs to carry a fabric, each thing really tried in a scratch namespace, and what mends its absence.

Owns the list of checks; `doctor` prints all of them, `up` refuses on the first required one that fails, before
anything is created. Changes nothing that lasts: every trial lives in a namespace that dies with its process.
How the machine is asked stands in `Machine`, so a missing feature is simulated by another `Machine`, not by a switch.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from mrcemu.errors import UnfitEnvironmentError

TRIAL_TIMEOUT_S = 10.0
MIN_CPUS = 2  # ours: below, the two ends of a transfer share one core and the links stop keeping their rate
MIN_OPEN_FILES = (
    1024  # ours: a socket per port of a 16-host, eight-plane fabric (128), a namespace handle per node, room
)
# Neighbour entries of the eight-plane fabric (384) and a second one beside it, below the kernel's default of 1,024.
MIN_NEIGHBOURS = 1024

_KERNEL_FIX = "use a stock Debian 12/13 or Ubuntu 24.04 kernel (6.1 or newer; not WSL2 or a cut-down cloud kernel)"
_PREPARE = "ip link set lo up"
_VETH = "ip link add name trial0 type veth peer name trial1 && ip link set trial0 up && ip link set trial1 up"
_HTB = f"{_PREPARE} && tc qdisc add dev lo root handle 1: stab overhead 0 linklayer ethernet htb default 2"
_HTB_CLASS = f"{_HTB} && tc class add dev lo parent 1: classid 1:2 htb rate 25mbit burst 4500 quantum 9000"
_SID = "ip -6 route add local fcbb:bbbb:4400::/48 encap seg6local action End{flavor} dev lo"


class Level(Enum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"  # something optional is missing, or a limit is low
    MISSING = "missing"  # no fabric can be built


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the doctor's table; `fix` is empty when nothing needs mending."""

    name: str
    level: Level
    found: str
    fix: str = ""


def _run(command: Sequence[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TRIAL_TIMEOUT_S)
    except FileNotFoundError:
        return 127, f"{command[0]}: not installed"
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {TRIAL_TIMEOUT_S:.0f} s"
    return done.returncode, done.stdout + done.stderr


def _read(path: str) -> str:
    return Path(path).read_text().strip()


def _euid() -> int:
    return os.geteuid()


@dataclass(frozen=True, slots=True)
class Machine:
    """The questions the checks ask, as functions; the defaults ask the real machine."""

    run: Callable[[Sequence[str]], tuple[int, str]] = _run  # (exit status, stdout and stderr)
    which: Callable[[str], str | None] = shutil.which
    read: Callable[[str], str] = _read  # OSError if there is no such file
    euid: Callable[[], int] = _euid
    cpus: Callable[[], int] = lambda: len(os.sched_getaffinity(0))
    open_files: Callable[[], tuple[int, int]] = lambda: resource.getrlimit(resource.RLIMIT_NOFILE)
    kernel: Callable[[], str] = lambda: os.uname().release

    def in_scratch(self, script: str) -> tuple[int, str]:
        """Run a shell script in a fresh network namespace that ends with it."""
        return self.run(["unshare", "--net", "--", "sh", "-c", script])


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to find out: `probe` returns whether it is there, and what was found."""

    name: str
    probe: Callable[[Machine], tuple[bool, str]]
    fix: str
    required: bool = True
    needs_root: bool = False
    used_for: str = field(default="")  # why an optional thing matters

    def result(self, machine: Machine) -> Result:
        if self.needs_root and machine.euid() != 0:
            return Result(self.name, Level.WARN, "not tried: needs root", "run sudo mrcemu doctor")
        good, found = self.probe(machine)
        if good:
            return Result(self.name, Level.OK, found)
        if self.required:
            return Result(self.name, Level.MISSING, found, self.fix)
        return Result(
            self.name, Level.WARN, f"{found} (only for {self.used_for})" if self.used_for else found, self.fix
        )


def _trial(script: str, expected: str = "") -> Callable[[Machine], tuple[bool, str]]:
    def probe(machine: Machine) -> tuple[bool, str]:
        status, output = machine.in_scratch(script)
        if status != 0:
            return False, (output.strip().splitlines() or [f"exit status {status}"])[0]
        if expected not in output:
            return False, "accepted, but reading it back shows something else"
        return True, "tried"

    return probe


def _tool(name: str) -> Callable[[Machine], tuple[bool, str]]:
    def probe(machine: Machine) -> tuple[bool, str]:
        path = machine.which(name)
        return path is not None, path or "not installed"

    return probe


def _rights(machine: Machine) -> tuple[bool, str]:
    return machine.euid() == 0, "root" if machine.euid() == 0 else f"user {machine.euid()}"


def _scratch(machine: Machine) -> tuple[bool, str]:
    status, output = machine.in_scratch("true")
    return status == 0, "tried" if status == 0 else output.strip()


def _kernel(machine: Machine) -> tuple[bool, str]:
    release = machine.kernel()
    major, minor = (int("".join(filter(str.isdigit, part)) or 0) for part in [*release.split("."), "0"][:2])
    return (major, minor) >= (6, 1), f"Linux {release}"


def _cpus(machine: Machine) -> tuple[bool, str]:
    return machine.cpus() >= MIN_CPUS, f"{machine.cpus()} usable"


def _open_files(machine: Machine) -> tuple[bool, str]:
    soft, hard = machine.open_files()
    shown = ["unlimited" if limit == resource.RLIM_INFINITY else str(limit) for limit in (soft, hard)]
    return soft == resource.RLIM_INFINITY or soft >= MIN_OPEN_FILES, f"{shown[0]} (hard limit {shown[1]})"


def _neighbours(machine: Machine) -> tuple[bool, str]:
    try:
        ceiling = int(machine.read("/proc/sys/net/ipv6/neigh/default/gc_thresh3"))
    except (OSError, ValueError):
        return False, "gc_thresh3 cannot be read: IPv6 is off"
    return ceiling >= MIN_NEIGHBOURS, f"{ceiling} entries"


CHECKS: tuple[Check, ...] = (
    Check("rights", _rights, "run it with sudo"),
    Check("kernel", _kernel, _KERNEL_FIX),
    Check("tool ip", _tool("ip"), "apt-get install iproute2"),
    Check("tool tc", _tool("tc"), "apt-get install iproute2"),
    Check("tool mnexec", _tool("mnexec"), "apt-get install --no-install-recommends mininet"),
    Check(
        "namespaces", _scratch, "in a container: run it with --privileged; else a kernel with CONFIG_NET_NS",
        needs_root=True,
    ),
    Check("veth", _trial(_VETH), f"modprobe veth, or {_KERNEL_FIX}", needs_root=True),
    Check(
        "SRv6", _trial(f"{_PREPARE} && {_SID.format(flavor='')} && ip -6 route show table all", "seg6local"),
        f"CONFIG_IPV6_SEG6_LWTUNNEL: {_KERNEL_FIX}", needs_root=True,
    ),
    Check(
        "NEXT-CSID",
        _trial(
            f"{_PREPARE} && {_SID.format(flavor=' flavors next-csid lblen 32 nflen 16')} && ip -6 route show table all",
            "next-csid",
        ),
        f"micro-SIDs need Linux 6.1 and iproute2 6.1: {_KERNEL_FIX}", needs_root=True,
    ),
    Check("HTB", _trial(_HTB_CLASS), f"modprobe sch_htb, or {_KERNEL_FIX}", needs_root=True),
    Check(
        "cls_u32",
        _trial(f"{_HTB_CLASS} && tc filter add dev lo parent 1: protocol ipv6 u32 match u32 0 0 flowid 1:2"),
        f"modprobe cls_u32, or {_KERNEL_FIX}", needs_root=True,
    ),
    Check(
        "clsact", _trial(f"{_PREPARE} && tc qdisc add dev lo clsact"), "modprobe sch_ingress", required=False,
        needs_root=True, used_for="trimming",
    ),
    Check(
        "netem", _trial(f"{_PREPARE} && tc qdisc add dev lo root netem delay 1ms"), "modprobe sch_netem",
        required=False, needs_root=True, used_for="delay faults",
    ),
    Check("tool tcpdump", _tool("tcpdump"), "apt-get install tcpdump", required=False, used_for="capture filters"),
    Check("CPUs", _cpus, "give the machine two CPUs: links do not keep their rate on one", required=False),
    Check("open files", _open_files, f"ulimit -n {MIN_OPEN_FILES}", required=False),
    Check(
        "neighbour table", _neighbours, f"sysctl -w net.ipv6.neigh.default.gc_thresh3={4 * MIN_NEIGHBOURS}",
        required=False,
    ),
)  # fmt: skip


def examine(machine: Machine | None = None, checks: Sequence[Check] = CHECKS) -> list[Result]:
    """Run every check; required things first decide nothing here, the caller reads the levels."""
    asked = machine or Machine()
    return [check.result(asked) for check in checks]


def require(machine: Machine | None = None, checks: Sequence[Check] = CHECKS) -> None:
    """UnfitEnvironmentError for the first required thing that is missing; optional things do not block."""
    asked = machine or Machine()
    for check in checks:
        if check.required and (result := check.result(asked)).level is Level.MISSING:
            raise UnfitEnvironmentError(f"{result.name}: {result.found}", result.fix)
