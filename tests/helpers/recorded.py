"""Spans of this process, kept instead of sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shared.tracing import tracer
from shared.tracing.tracer import Recorded


class Kept:
    """A Sink that keeps what it gets, in the order in which spans ended."""

    def __init__(self) -> None:
        self.spans: list[Recorded] = []

    def put(self, span: Recorded) -> None:
        self.spans.append(span)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def named(self, name: str) -> list[Recorded]:
        """The spans of this name."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Recorded:
        """The only span of this name."""
        [span] = self.named(name)
        return span


@contextmanager
def recording(*, share: float = 1.0, content: bool = False) -> Iterator[Kept]:
    """Traces are on, and go here."""
    kept = Kept()
    tracer.install(kept, share=share, content=content)
    try:
        yield kept
    finally:
        tracer.install(None)
