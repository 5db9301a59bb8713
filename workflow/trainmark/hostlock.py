"""One measurement at a time on a machine, for all users, checkouts and schedulers.

The lock is an flock: the kernel releases it when its holder dies, however it dies. The file says
who holds it, which is only told, never relied upon.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainmark.errors import UserError

DEFAULT = "/tmp/trainmark-measure.lock"
POLL_SECONDS = 0.5
TELL_SECONDS = 10.0
HOLDER_BYTES = 1000


def lock_path() -> Path:
    return Path(os.environ.get("TRAINMARK_LOCK", DEFAULT))


@contextlib.contextmanager
def host_lock(what: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the machine while the block runs; while waiting, tell every 10 s who holds it."""
    handle = _acquire(lock_path(), tell)
    try:
        _write(handle, f"{_user()} (process {os.getpid()}, {what})\n")
        yield
    finally:
        _write(handle, "")
        os.close(handle)


def _acquire(path: Path, tell: Callable[[str], None]) -> int:
    """The descriptor of the locked file; closing it, or dying, releases the lock."""
    told = -TELL_SECONDS
    while True:
        handle = _open(path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, path):
                return handle
        except BlockingIOError:
            if time.monotonic() - told >= TELL_SECONDS:
                told = time.monotonic()
                tell(f"waiting: {_holder(handle)} is measuring on this machine")
            time.sleep(POLL_SECONDS)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """False when somebody has removed or replaced the file: then others lock another one."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _open(path: Path) -> int:
    """Open or create the file, writable by all users.

    O_CREAT on another user's file fails in a sticky folder, so it is given only for a new file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with contextlib.suppress(FileNotFoundError):
                return _regular(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), path)
            with contextlib.suppress(FileExistsError):
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                os.fchmod(handle, 0o666)
                return handle
    except OSError as error:
        raise UserError(
            f"{path}: the lock that keeps measurements apart cannot be opened ({error.strerror}); "
            "remove it, or set TRAINMARK_LOCK to a file that all users may write to"
        ) from None


def _regular(handle: int, path: Path) -> int:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "not a regular file", str(path))
    return handle


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return f"user {os.getuid()}"


def _holder(handle: int) -> str:
    text = os.pread(handle, HOLDER_BYTES, 0).decode(errors="replace").strip()
    return text or "another process"


def _write(handle: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, text.encode(), 0)
