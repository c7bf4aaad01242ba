"""Copies of this process. Law: a copy never serves: the gateway's sockets lead nowhere in it, and signals have their default.

Code of the operator may fork, by itself or with `multiprocessing`. A copy with the listening socket would keep the address from
the next gateway, and one with a connection would hide its end from the peer.
"""

import os
import signal
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

_DEFAULTS = (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
)


class Owner(Protocol):
    """What has file descriptors that no copy of the process may use."""

    def descriptors(self) -> Iterable[int]: ...


_owners: WeakSet[Owner] = WeakSet()


def keep_from_copies(owner: Owner) -> None:
    _owners.add(owner)


class _Forking(threading.local):
    """`mask`: the signals that the thread that forks has blocked otherwise."""

    mask: set[int | signal.Signals] | None = None


_forking = _Forking()


def _before() -> None:
    """A signal that a copy gets before it has its own handlers would be told to the gateway, by the descriptor they share."""
    if _owners:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [number for number, _ in _DEFAULTS])


def _after() -> None:
    if _forking.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)
        _forking.mask = None


def _in_copy() -> None:
    if not _owners:
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in [each for owner in _owners for each in owner.descriptors()]:
        # Not closed: the objects that know the number would close a later file of the same number.
        with suppress(OSError):
            os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)
    signal.set_wakeup_fd(-1)
    for number, handler in _DEFAULTS:
        signal.signal(number, handler)
    _after()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_copy)
