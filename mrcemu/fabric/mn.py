"""Mininet's node, link and interface classes without commands: what they stand for is already built.

A node's shell starts on the first command, because one costs 3.4 MB and 20 ms, and eighty of them would be most of a
fabric. Owns shells; refuses to configure anything.
"""

from __future__ import annotations

import os
import shutil
import signal
from subprocess import Popen, TimeoutExpired
from typing import TYPE_CHECKING, Any

from mininet.link import Intf, Link
from mininet.node import Node

from mrcemu.errors import UnfitEnvironmentError

if TYPE_CHECKING:
    from mrcemu.fabric.net import MrcNet

# A shell that was hung up leaves within milliseconds.
SHELL_GRACE_S = 1.0


class MrcNode(Node):  # type: ignore[misc]  # Mininet carries no types
    """A namespace with a shell that starts when it is first needed."""

    isSetup = True  # noqa: N815  (Mininet's flag; it would look for ifconfig, which nothing here uses)

    def __init__(self, name: str, net: MrcNet, **params: Any) -> None:
        self.net = net
        self._hold_shell = True
        super().__init__(name, **{**params, "inNamespace": True, "waitExited": False})
        self._hold_shell = False

    def startShell(self, mnopts: str | None = None) -> None:
        """Start the shell in the node's namespace; does nothing while Mininet's constructor asks for it."""
        if not self._hold_shell and not self.shell:
            if shutil.which("mnexec") is None:
                raise UnfitEnvironmentError("mnexec is missing", "apt install --no-install-recommends mininet")
            super().startShell(mnopts)
            self.net.journal.add_process(self.shell.pid)

    # `pid` is a property, so that `mnexec -a {node.pid}` in a script finds a shell and the constructor starts none.
    @property
    def pid(self) -> int | None:
        if self._pid is None:
            self.startShell()
        return self._pid

    @pid.setter
    def pid(self, value: int | None) -> None:
        self._pid = value

    def sendCmd(self, *args: Any, **kwargs: Any) -> Any:
        self.startShell()
        return super().sendCmd(*args, **kwargs)

    def cmd(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command in the node's shell and return its output."""
        self.startShell()
        return super().cmd(*args, **kwargs)

    def popen(self, *args: Any, **kwargs: Any) -> Popen[Any]:
        """Run a command in the node's namespace without a shell of the node's own; arguments as `subprocess.Popen`."""
        kwargs.setdefault("mncmd", self._enter())
        self._hold_shell = True  # Mininet asks for the shell's pid although it then has no use for it
        try:
            process: Popen[Any] = super().popen(*args, **kwargs)
        finally:
            self._hold_shell = False
        self.net.journal.add_process(process.pid)
        return process

    def terminate(self) -> None:
        """End the shell; one that will not hang up is killed. Mininet would wait for it and keep the node for ever."""
        shell = self.shell
        super().terminate()
        self._pid = None
        if shell is None:
            return
        try:
            shell.wait(SHELL_GRACE_S)
        except TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        for nodes in (Node.inToNode, Node.outToNode):
            for fd in [fd for fd, node in nodes.items() if node is self]:
                del nodes[fd]

    def config(self, **_params: Any) -> dict[str, Any]:
        """Nothing to configure."""
        return {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {','.join(self.intfNames())} pid={self._pid}>"

    def _enter(self) -> list[str]:
        """`ip netns exec` enters the namespace and gives the command a /sys that shows it."""
        return ["ip", "netns", "exec", self.net.plan.namespaces[self.name]]

    def _popen(self, cmd: list[str], **params: Any) -> Popen[Any]:
        """Mininet's `mnexec -cdn` makes a namespace of its own; ours exists, so the command is run inside it."""
        if cmd[0] == "mnexec":
            cmd = [*self._enter(), "mnexec", "-cd", *cmd[2:]]
        process: Popen[Any] = super()._popen(cmd, **params)
        return process


class MrcHost(MrcNode):
    """A host with one NIC port in every plane. It has no kernel addresses: endpoints speak through packet sockets."""


class MrcSwitch(MrcNode):
    """A T0 or T1 switch: kernel forwarding by micro-SID."""

    def start(self, _controllers: Any) -> None:
        """Mininet's `switch NAME start`; starting one that is up changes nothing."""
        if any(self.net.faults.why_down(spec.port.name) for spec in self.net.plan.ports_by_node[self.name]):
            self.net.faults.switch_up(self.name)

    def stop(self, deleteIntfs: bool = True) -> None:
        """Mininet's `switch NAME stop`: every port goes down."""
        self.net.faults.switch_down(self.name)

    def connected(self) -> bool:
        return True

    def dpctl(self, *_args: Any) -> str:
        return f"{self.name} forwards by static SRv6 micro-SID routes: no OpenFlow\n"


class MrcIntf(Intf):  # type: ignore[misc]  # Mininet carries no types
    """A port that already exists."""

    def config(self, **_params: Any) -> dict[str, Any]:
        return {}

    def updateIP(self) -> None:
        """No kernel address: Mininet's prompt then leaves a node's name in a command as it is."""

    def updateMAC(self) -> Any:
        return self.mac

    def isUp(self, setUp: bool = False) -> bool:
        """Whether the port is administratively and operationally up; it is raised by `faults`, not from here."""
        state = self.node.net.counters_of(self.node.name)[f"{self.node.name}:{self.name}"]
        return bool(state.admin_up and state.oper_up)

    def status(self) -> str:
        return "OK" if self.isUp() else "DOWN"

    def delete(self) -> None:
        """Ports go with their namespaces."""
        self.node.delIntf(self)
        self.link = None


class MrcLink(Link):  # type: ignore[misc]  # Mininet carries no types
    """A veth pair that already exists; `name` as in the topology."""

    def __init__(self, node1: MrcNode, node2: MrcNode, name: str = "", **params: Any) -> None:
        self.name = name
        super().__init__(node1, node2, **params)

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_kwargs: Any) -> None:
        """The pair was made by the plan."""

    def __str__(self) -> str:
        ends = (self.intf1, self.intf2)
        return "<->".join(f"{end.node.name}-{end.name}" for end in ends)
