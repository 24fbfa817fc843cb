"""Which worker of pytest-xdist runs which test, with `--dist loadgroup`."""

from __future__ import annotations

from xdist.scheduler.loadscope import LoadScopeScheduling

from tests.helpers import kinds


class Units(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each test to the worker that is free next. The tests of a file that share a fleet go to one worker, which
    starts it once; they are given out first.

    xdist's own scheduler reads a group from the id of a test, where xdist can no longer write it: it sets an attribute
    that pytest does not read since 9.1.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def unit(nodeid: str) -> str:
    """What goes to a worker as a whole: a test, a file of `kinds.TOGETHER`, or all of `kinds.LITELLM`."""
    path, _, name = nodeid.partition("::")
    if kinds.among(kinds.LITELLM, path, name):
        return "LiteLLM"
    return path if kinds.among(kinds.TOGETHER, path) else nodeid
