"""Shoal for other people's code: `process_direct`, `local_worker`, and `shoal.plugin` for
extensions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from shared.version import VERSION

__version__ = VERSION

__all__ = ["AnswerLate", "NotAnswered", "__version__", "local_worker", "process_direct"]

if TYPE_CHECKING:
    from shoal.direct import AnswerLate, NotAnswered, process_direct
    from shoal.own_worker import local_worker
else:

    def __getattr__(name: str) -> object:
        """Load a name on first use: a plugin package must not pay for it."""
        if name not in __all__:
            raise AttributeError(f"module 'shoal' has no attribute {name!r}")
        home = import_module("shoal.own_worker" if name == "local_worker" else "shoal.direct")
        return getattr(home, name)
