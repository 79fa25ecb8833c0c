"""SIGBUS has one handler. While a region with signal delivery needs it, whoever else takes it is told so at once: otherwise the next
fault of the region would end the process, much later and elsewhere. Python's crash handler only stays when it is to go: that harms
nobody, and test runners ask for it at their end."""

from __future__ import annotations

import faulthandler
import functools
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ._faultless import RegionError, _needs_sigbus


def _has_sigbus(signals: Any) -> bool:
    return signal.SIGBUS in set(signals)


def _blocks(how: Any, mask: Any) -> bool:
    return how != signal.SIG_UNBLOCK and _has_sigbus(mask)


_BETWEEN = "before the first of them is made, or after the last is gone"
# Who takes SIGBUS, whether a call of it does, and what to do instead.
_TAKERS: list[tuple[Any, str, Callable[..., bool], str]] = [
    (signal, "signal", lambda signalnum, *_: signalnum == signal.SIGBUS, f"install the handler {_BETWEEN}"),
    (signal, "siginterrupt", lambda signalnum, *_: signalnum == signal.SIGBUS, f"call siginterrupt {_BETWEEN}"),
    (signal, "pthread_sigmask", _blocks, "leave it out of the mask"),
    (faulthandler, "enable", lambda *_: not faulthandler.is_enabled(), f"enable faulthandler {_BETWEEN}"),
]


def watch() -> None:
    """Has these functions look first, from now on."""
    if not _TAKERS:
        return
    faulthandler.disable = _stays(faulthandler.disable)
    while _TAKERS:
        module, name, takes, instead = _TAKERS.pop()
        setattr(module, name, _looks_first(getattr(module, name), takes, instead))


def _looks_first(function: Callable[..., Any], takes: Callable[..., bool], instead: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def looks_first(*args: Any, **kwargs: Any) -> Any:
        # A look would use up an iterator.
        args = tuple(list(arg) if isinstance(arg, Iterator) else arg for arg in args)
        if _needs_sigbus() and takes(*args):
            raise RegionError(
                "SIGBUS brings the memory of regions and arrays made with delivery='signal', and another handler would end "
                f"the process at their next fault: {instead}, or use another delivery mode"
            )
        return function(*args, **kwargs)

    return looks_first


def _stays(function: Callable[[], Any]) -> Callable[[], Any]:
    @functools.wraps(function)
    def stays() -> Any:
        if _needs_sigbus() and faulthandler.is_enabled():
            warnings.warn("faulthandler stays enabled: it would take SIGBUS along, which regions need", RuntimeWarning, 2)
            return True
        return function()

    return stays
