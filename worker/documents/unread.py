"""What a document holds that cannot be shown as text: counted, and named in a line."""

from __future__ import annotations

from collections import Counter


class Unread:
    """Counts parts that are left out, by what people call them."""

    def __init__(self) -> None:
        self._parts: Counter[str] = Counter()

    def add(self, what: str, times: int = 1) -> None:
        """Count a part, such as `picture`."""
        self._parts[what] += times

    def note(self) -> str:
        """Return `[2 pictures and 1 chart were not read]`; empty if nothing was left out. What is
        counted afterwards is in the next note."""
        parts = [f"{times} {what}{'' if times == 1 else 's'}" for what, times in (+self._parts).items()]
        many = sum(self._parts.values()) > 1
        self._parts.clear()
        listed = " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
        return f"[{listed} {'were' if many else 'was'} not read]" if parts else ""
