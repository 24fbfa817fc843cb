"""Keys of the picker of `shoal top` that read something or act: details, log, stopping a turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Final, Protocol

import msgspec

from console.top.fleet_snapshot import SnapshotPoller
from console.top.picker import Picker, Question, Row
from shared.errors import RedisAway, Refused
from shared.ids import log_id

LOG_LINES: Final = 200


class Changed(Protocol):
    """Called after a change that is not due to a key; `look`: a new snapshot is wanted."""

    def __call__(self, *, look: bool) -> None: ...


class PickerActions:
    """State of the picker, and what its keys do. `log` are the lines that it shows."""

    def __init__(self, poller: SnapshotPoller, folder: Path, changed: Changed) -> None:
        self.state = Picker()
        self.log: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self._poller = poller
        self._folder = folder
        self._changed = changed

    def on_key(self, key: str, rows: list[Row]) -> bool:
        """Handle a key; return False if it is none of the picker's."""
        before = self.state
        if before.question is not None:
            self.state = msgspec.structs.replace(before, question=None, notice="")
            if key in ("y", "Y"):
                self._start(self._stop(before.question))
            return True
        turn = before.chosen if before.chosen and before.chosen.kind == "turn" else None
        if key == "x" and turn is not None and before.view in ("list", "detail"):
            self._start(self._ask(turn.name))
            return True
        self.state = before.after_key(key, rows)
        if self.state is before:
            return False
        chosen = self.state.chosen
        view = self.state.view
        self._poller.with_turns = view is not None
        detailed = view == "detail" and chosen is not None and chosen.kind == "turn"
        self._poller.session = chosen.name if detailed and chosen is not None else ""
        if view == "log" and chosen is not None:
            self.log = ["reading …"]
            self._start(self._read_log(chosen))
        if view != before.view:
            self._changed(look=True)
        return True

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _ask(self, session: str) -> None:
        # The number is read before the question: a late answer must not stop the next turn.
        try:
            turn = await self._poller.head_turn(session)
        except (RedisAway, Refused) as exc:
            self._tell(str(exc))
            return
        if turn is None:
            self._tell("the turn is over")
            return
        self.state = msgspec.structs.replace(self.state, question=Question(session, turn))
        self._changed(look=False)

    async def _stop(self, question: Question) -> None:
        try:
            stopped = await self._poller.stop_turn(*question)
        except (RedisAway, Refused) as exc:
            self._tell(str(exc))
        else:
            self._tell("stopped" if stopped else "the turn was over")

    def _tell(self, notice: str) -> None:
        self.state = msgspec.structs.replace(self.state, notice=notice)
        self._changed(look=True)

    async def _read_log(self, row: Row) -> None:
        lines = await asyncio.to_thread(read_log, self._folder, row)  # up to 16 MB
        if self.state.view == "log" and self.state.chosen == row:
            self.log = lines
            self._changed(look=False)


def read_log(folder: Path, row: Row) -> list[str]:
    """Return the newest lines of the log of `shoal up` about a row: those that name a session by
    its hash, or those of all processes of the kind. Without a log, a line that says where to
    look."""
    from console.up.log_file import LogFileReader, LogLine

    id = log_id(row.name)

    def wanted(line: LogLine) -> bool:
        return id in line.text if row.kind == "turn" else line.process.startswith(row.kind)

    try:
        lines = deque(LogFileReader(folder, wanted).read_all(), maxlen=LOG_LINES)
    except OSError:
        return [f"There is no log of `shoal up` in {str(folder)!r}; `shoal logs` says where else to look."]
    return [f"{line.at:%H:%M:%S} {line.text}" for line in lines] or ["The log has no line about it."]
