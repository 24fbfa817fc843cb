"""Pictures of files that tools looked at: shown to the model while the turn runs, and never kept in
history.

Many providers take pictures in messages of a user only, so those of a reply's tools hang together
in one behind the results. A successor of the turn looks at the files again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from shared.errors import ToolFailed
from worker.agent.image import Image, image_part

Message = dict[str, Any]

TURN_PICTURES: Final = 4
"""So many pictures of files are shown in one turn."""

MARK: Final = "[Pictures of files that your tools looked at; nobody wrote this]"
REFUSED: Final = "they cannot be shown: this model takes no pictures, or not these"
_PATH_CHARS: Final = 200


class Pictured(msgspec.Struct, frozen=True):
    """A tool's result with pictures: `images` are the paths of files that the model is shown behind
    the text."""

    text: str
    images: tuple[str, ...] = ()


class Pictures(Protocol):
    """Where pictures of files come from."""

    async def picture(self, path: str) -> Image:
        """One that may be shown. Raises ToolFailed for what is not there, no picture, or too
        big."""
        ...


class NoPictures:
    """Those of an agent that has no files."""

    async def picture(self, path: str) -> Image:
        raise ToolFailed(f"there is no picture {path!r}: this agent has no files")


NO_PICTURES: Final = NoPictures()


class Gallery:
    """The pictures of one turn: `frame` says where some will be, `hang` brings them."""

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures
        self._left = TURN_PICTURES
        self._empty: list[tuple[Message, Sequence[str]]] = []

    def frame(self, paths: Sequence[str]) -> Message:
        """The message that these pictures will be in."""
        message: Message = {"role": "user", "content": MARK}
        self._empty.append((message, paths))
        return message

    async def hang(self) -> None:
        """Bring all pictures that are not there yet. What cannot be shown is said in their
        place."""
        waiting, self._empty = self._empty, []
        for message, paths in waiting:
            parts, notes = [], []
            for path in paths:
                shown = await self._looked_at(path)
                if isinstance(shown, Image):
                    parts.append(image_part(shown))
                    notes.append(_named(path))
                else:
                    notes.append(f"{_named(path)} ({shown})")
            text = f"{MARK}\n{', '.join(notes)}"
            message["content"] = [*parts, {"type": "text", "text": text}] if parts else text

    def take_down(self, messages: Iterable[Message]) -> list[Message]:
        """The messages without any of these pictures; no more are shown in this turn."""
        self._left = 0
        return [_bare(message) if _is_gallery(message) else message for message in messages]

    async def _looked_at(self, path: str) -> Image | str:
        if self._left <= 0:
            return f"not shown: {TURN_PICTURES} pictures of files are shown in one turn; say what you have seen first"
        try:
            image = await self._pictures.picture(path)
        except ToolFailed as exc:
            return f"not shown: {exc}"
        self._left -= 1
        return image


def _named(path: str) -> str:
    return repr(path if len(path) <= _PATH_CHARS else f"{path[:_PATH_CHARS]}…")


def _is_gallery(message: Message) -> bool:
    content = message["content"]
    return isinstance(content, list) and str(content[-1].get("text")).startswith(MARK)


def _bare(message: Message) -> Message:
    return {**message, "content": f"{message['content'][-1]['text']}: {REFUSED}"}
