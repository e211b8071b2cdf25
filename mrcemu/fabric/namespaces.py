"""Named network namespaces: make, enter, leave, unmake; visible to `ip netns` under /run/netns.

Owns setns, unshare and the mounts. A thread that enters a namespace always returns to its own, also on errors.
Refuses to decide which names may be touched (`journal.py` does) and to open sockets in a
namespace that exists (`mrcemu.linux.netns.inside` does). Sources: setns(2), ip-netns(8).
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mrcemu.errors import UnfitEnvironmentError

NETNS_DIR = Path("/run/netns")
CLONE_NEWNET = 0x40000000
MS_BIND, MS_REC, MS_SHARED = 0x1000, 0x4000, 0x100000
MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


def path_of(namespace: str) -> str:
    """ "/run/netns/NAME"."""
    return str(NETNS_DIR / namespace)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def setns(fd: int) -> None:
    _check(_libc.setns(fd, CLONE_NEWNET), "setns")


def _mount(source: str, target: str, flags: int) -> None:
    _check(_libc.mount(source.encode(), target.encode(), b"none", flags, None), f"mount {target}")


@contextmanager
def returning_home() -> Iterator[None]:
    """Whatever namespaces the block enters, the thread is back in its own afterwards."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        setns(home)
        os.close(home)


def prepare_directory() -> bool:
    """Make /run/netns and its shared mount as `ip netns` does; returns whether the mount is ours."""
    NETNS_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        _mount("", str(NETNS_DIR), MS_SHARED | MS_REC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise _unfit(error) from error
        _mount(str(NETNS_DIR), str(NETNS_DIR), MS_BIND | MS_REC)
        _mount("", str(NETNS_DIR), MS_SHARED | MS_REC)
        return True
    return False


def release_directory() -> None:
    """Undo the mount of `prepare_directory` unless someone's namespace is mounted in it.

    Not detached lazily and the directory left in place: both could hit a namespace that someone else is just making.
    """
    _libc.umount2(str(NETNS_DIR).encode(), 0)


def create_and_enter(namespace: str, sysctls: Iterable[tuple[str, str, bool]]) -> None:
    """Make a named namespace and stay in it: call within `returning_home`. FileExistsError if the name is taken.

    `sysctls` are (key below /proc/sys, value, whether a kernel without it will do).
    """
    target = path_of(namespace)
    os.close(os.open(target, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444))
    try:
        _check(_libc.unshare(CLONE_NEWNET), "unshare")
        _mount("/proc/thread-self/ns/net", target, MS_BIND)
    except OSError as error:
        raise _unfit(error) from error
    for key, value, optional in sysctls:
        if not optional or os.path.exists(f"/proc/sys/{key}"):
            write_sysctl(key, value)


def enter_anonymous() -> None:
    """Enter a new namespace without a name, which lives as long as a socket in it: call within `returning_home`."""
    _check(_libc.unshare(CLONE_NEWNET), "unshare")


def write_sysctl(key: str, value: str) -> None:
    """Set a value below /proc/sys as the calling thread's namespace sees it."""
    try:
        fd = os.open(f"/proc/sys/{key}", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise UnfitEnvironmentError(f"/proc/sys/{key} is missing", "use a kernel with IPv6", error.errno) from error
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def remove(namespace: str) -> bool:
    """Unmount a name until nothing is stacked on it and delete it; False if it was not there."""
    target = path_of(namespace)
    while _libc.umount2(target.encode(), MNT_DETACH) == 0:
        pass
    try:
        os.unlink(target)
    except FileNotFoundError:
        return False
    return True


def inode_of(namespace: str) -> int | None:
    """Which kernel namespace a name stands for; None if the name is absent or was never mounted."""
    try:
        status, directory = os.stat(path_of(namespace)), os.stat(NETNS_DIR)
    except FileNotFoundError:
        return None
    return None if status.st_dev == directory.st_dev else status.st_ino


def _unfit(error: OSError) -> UnfitEnvironmentError:
    return UnfitEnvironmentError(
        f"cannot make network namespaces ({error.strerror})",
        "run as root; in a container add CAP_SYS_ADMIN and CAP_NET_ADMIN (--privileged)",
        error.errno,
    )
