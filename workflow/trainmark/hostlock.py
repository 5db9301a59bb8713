"""One measurement at a time on a machine, for all users, checkouts and schedulers.

The lock is an flock: the kernel releases it when its holder dies, however it dies.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from trainmark.errors import UserError

DEFAULT = "/tmp/trainmark-measure.lock"
POLL_SECONDS = 0.5
TELL_SECONDS = 10.0


def lock_path() -> Path:
    return Path(os.environ.get("TRAINMARK_LOCK", DEFAULT))


@contextlib.contextmanager
def host_lock(what: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the machine while the block runs; while waiting, tell every 10 s who holds it."""
    path = lock_path()
    _make_shared(path)
    lock = FileLock(path, mode=0o666)
    _acquire(lock, path, tell)
    try:
        _write_holder(path, what)
        yield
    finally:
        lock.release()


def _make_shared(path: Path) -> None:
    """Create the file writable by all: O_CREAT on another user's file fails in a sticky /tmp."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return
    except OSError as error:
        raise UserError(
            f"{path}: the lock that keeps measurements apart cannot be made ({error.strerror}); "
            "set TRAINMARK_LOCK to a file in a folder that all users may write to"
        ) from None
    os.fchmod(handle, 0o666)
    os.close(handle)


def _acquire(lock: FileLock, path: Path, tell: Callable[[str], None]) -> None:
    told = -TELL_SECONDS
    while True:
        try:
            lock.acquire(timeout=0)
            return
        except Timeout:
            if time.monotonic() - told >= TELL_SECONDS:
                told = time.monotonic()
                tell(f"waiting: {holder(path)} is measuring on this machine")
            time.sleep(POLL_SECONDS)
        except PermissionError:
            raise UserError(
                f"{path}: the lock that keeps measurements apart is not writable; "
                "remove it, or set TRAINMARK_LOCK to a file that all users may write to"
            ) from None


def holder(path: Path) -> str:
    try:
        text = _holder_path(path).read_text(encoding="utf-8").strip()
    except OSError:
        text = ""
    return text or "another process"


def _holder_path(path: Path) -> Path:
    return path.with_suffix(".holder")


def _write_holder(path: Path, what: str) -> None:
    """Who holds the lock is only told, never relied upon; another user's file is left alone."""
    beside = _holder_path(path)
    text = f"{getpass.getuser()} (process {os.getpid()}, {what})\n"
    with contextlib.suppress(OSError):
        beside.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        beside.write_text(text, encoding="utf-8")
