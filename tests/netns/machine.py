"""A machine of one's own for tests of the built command: a private /run, so that `down --all` means only its fabrics.

The mount namespace is held by one process; commands enter it. Nothing of the product is used but its executable.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

EXECUTABLE = [sys.executable, "-m", "mrcemu.cli"]
PATIENCE_S = 60.0  # generous: a loaded machine is slow, not wrong


def _heed_ctrl_c():
    """A shell's background job ignores SIGINT, and so would all that a test run in one starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Machine:
    """A private /run and ways to run things with it."""

    def __init__(self):
        script = "mount -t tmpfs run /run && echo ready && exec sleep infinity"
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout.readline() == "ready\n"
        self._started = []
        self._first_mounts = set(self._mounts())  # copied from the host, hidden below our own /run
        self._mount_ns = os.readlink(f"/proc/{self._holder.pid}/ns/mnt")
        self._enter = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt"]

    def close(self):
        self.end_started()
        self.mrcemu("down", "--all")
        self._holder.kill()
        self._holder.wait()

    def _inside(self, words, cwd=None):
        return [*self._enter, f"--wd={cwd or os.getcwd()}", "--", *words]

    def run(self, *words, cwd=None, timeout=120, **kwargs):
        inside = self._inside(words, cwd)
        return subprocess.run(inside, capture_output=True, text=True, check=False, timeout=timeout, **kwargs)

    def mrcemu(self, *words, **kwargs):
        return self.run(*EXECUTABLE, *words, **kwargs)

    def start(self, *words, **kwargs):
        """A command that goes on; its process is the command itself (nsenter replaces itself)."""
        pipe = subprocess.PIPE
        inside = self._inside([*EXECUTABLE, *words])
        child = subprocess.Popen(inside, stdout=pipe, stderr=pipe, text=True, preexec_fn=_heed_ctrl_c, **kwargs)  # noqa: PLW1509 - no threads
        self._started.append(child)
        return self._started[-1]

    def end_started(self):
        """Kill what a test that failed left running; what ended by itself is only forgotten."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()
        self._started.clear()

    def good(self, *words):
        """Standard output of a command that must succeed."""
        done = self.mrcemu(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self, *words):
        return json.loads(self.good("status", *words, "--json"))

    def exec(self, node, *words):
        return self.good("exec", node, "--", *words)

    def ip(self, node, *words):
        """`ip` in a node of tiny, by hand: no mrcemu in between."""
        done = self.run("ip", "-n", f"mrc-tiny-{node}", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def state_dir(self, name):
        return Path(f"/proc/{self._holder.pid}/root/run/mrcemu/{name}")

    def _state_dirs(self):
        root = self.state_dir("")
        return list(root.iterdir()) if root.is_dir() else []

    def _mounts(self):
        return Path(f"/proc/{self._holder.pid}/mountinfo").read_text().splitlines()

    def left_behind(self):
        """What must be empty when nothing stands: namespaces, state, mounts and processes of this /run."""
        processes = [
            int(entry)
            for entry in os.listdir("/proc")
            if entry.isdigit() and int(entry) != self._holder.pid and mount_ns_of(entry) == self._mount_ns
        ]
        return {
            "namespaces": self.run("ip", "netns", "list").stdout.split(),
            "mounts": [line for line in self._mounts() if line not in self._first_mounts],
            "state": [item.name for item in self._state_dirs() if item.is_dir()],
            "processes": processes,
        }


def mount_ns_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return None


NOTHING = {"namespaces": [], "mounts": [], "state": [], "processes": []}


def eventually(check):
    """Whether `check` becomes true in good time."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.05)
    return False
