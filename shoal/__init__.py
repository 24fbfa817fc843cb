"""Shoal for other people's code: `process_direct`, and `shoal.plugin` for extensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.version import VERSION

__version__ = VERSION

__all__ = ["AnswerLate", "NotAnswered", "__version__", "process_direct"]

if TYPE_CHECKING:
    from shoal.direct import AnswerLate, NotAnswered, process_direct
else:

    def __getattr__(name: str) -> object:
        """Load `shoal.direct` on first use: a plugin package must not pay for it."""
        if name not in __all__:
            raise AttributeError(f"module 'shoal' has no attribute {name!r}")
        from shoal import direct

        return getattr(direct, name)
