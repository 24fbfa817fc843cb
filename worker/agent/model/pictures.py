"""Pictures of files that tools opened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from shared.errors import ToolFailed
from worker.agent.model.model import Image, image_part
from worker.agent.model.prompt import Message
from worker.agent.ports import Pictures

TURN_PICTURES: Final = 4  # the most pictures of files that are shown in one turn
MARK: Final = "[Pictures of files that your tools looked at; nobody wrote this]"
REFUSED: Final = "they cannot be shown: this model takes no pictures, or not these"
_PATH_CHARS: Final = 200


class TurnPictures:
    """Pictures of files that tools opened: shown to the model during the turn, not kept in history.
    `placeholder` reserves a message, `load` fills reserved ones. A successor of the turn loads them
    again. Many providers accept pictures only in messages of the user, so the pictures of all tools
    of one reply share one such message after the results."""

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures
        self._left = TURN_PICTURES
        self._pending: list[tuple[Message, Sequence[str]]] = []

    def placeholder(self, paths: Sequence[str]) -> Message:
        """Return the message that will contain these pictures."""
        message: Message = {"role": "user", "content": MARK}
        self._pending.append((message, paths))
        return message

    async def load(self) -> None:
        """Load the pictures of all placeholders, or say why one cannot be shown."""
        pending, self._pending = self._pending, []
        for message, paths in pending:
            parts, notes = [], []
            for path in paths:
                loaded = await self._load_picture(path)
                note = repr(path if len(path) <= _PATH_CHARS else f"{path[:_PATH_CHARS]}…")
                if isinstance(loaded, Image):
                    parts.append(image_part(loaded))
                else:
                    note += f" ({loaded})"
                notes.append(note)
            text = f"{MARK}\n{', '.join(notes)}"
            # The message is changed in place: it already stands in the prompt.
            message["content"] = [*parts, {"type": "text", "text": text}] if parts else text

    def remove_from(self, messages: Iterable[Message]) -> list[Message]:
        """Return the messages without any of these pictures. No more are shown in this turn."""
        self._left = 0
        return [_without_pictures(message) for message in messages]

    async def _load_picture(self, path: str) -> Image | str:
        """Return a picture, or the reason why it is not shown."""
        if self._left <= 0:
            limit = f"{TURN_PICTURES} pictures of files are shown in one turn"
            return f"not shown: {limit}; say what you have seen first"
        try:
            image = await self._pictures.picture(path)
        except ToolFailed as exc:
            return f"not shown: {exc}"
        self._left -= 1
        return image


def _without_pictures(message: Message) -> Message:
    content = message["content"]
    if not isinstance(content, list) or not str(content[-1].get("text")).startswith(MARK):
        return message
    return {**message, "content": f"{content[-1]['text']}: {REFUSED}"}
