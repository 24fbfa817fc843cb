"""Answers as recordings, for people who spoke and want to listen."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from shared.errors import BadInput, ModelError
from shared.ids import log_id
from shared.log import logger
from shared.media.reference import PREFIX, read_reference
from shared.media.store import MediaStore
from shared.messages.inbound import InboundMessage
from worker.agent.turn import AgentResult

if TYPE_CHECKING:
    from worker.llm.clients.voice_client import VoiceClient

_CODE: Final = re.compile(r"^(```|~~~).*?(^\1[^\n]*$|\Z)", re.DOTALL | re.MULTILINE)
_IMAGE_OR_LINK: Final = re.compile(r"!?\[([^\]\n]*)\]\([^()\s]*(?:\s[^()\n]*)?\)")
_ADDRESS: Final = re.compile(r"<?https?://\S+")
_LINE_MARK: Final = re.compile(r"^[ \t]*(#{1,6}[ \t]+|>[ \t]?|[-*+][ \t]+(\[[ xX]\][ \t]+)?)", re.MULTILINE)
_EMPHASIS: Final = re.compile(r"(\*\*|__|~~|\*|`+)(?=\S)(.+?)(?<=\S)\1")
_RULE: Final = re.compile(r"^[ \t]*([-*_=]{3,}|[|:\- ]{3,})[ \t]*$", re.MULTILINE)

SUFFIXES: Final = {"opus": "ogg", "mp3": "mp3", "wav": "wav", "flac": "flac"}
"""Of files in the formats of `voice.speaker_format`."""

log = logger("worker")


def speakable(markdown: str) -> str:
    """Return what of an answer is worth hearing: without marks, addresses and blocks of code, which
    the text has."""
    text = _CODE.sub("", markdown)
    text = _IMAGE_OR_LINK.sub(r"\1", text)
    text = _ADDRESS.sub("", text)
    text = _RULE.sub("", text)
    text = _LINE_MARK.sub("", text)
    for _ in range(2):  # bold in italics
        text = _EMPHASIS.sub(r"\2", text)
    return re.sub(r"\n{3,}", "\n\n", text.replace("|", " ")).strip()


@dataclass(frozen=True)
class SpokenAnswer:
    """Adds a recording to the reply of a turn. It is made from the text that is stored with it, in
    the same commit; a worker that takes over makes it again, for its text may differ."""

    voice: VoiceClient
    media: MediaStore
    session: str
    suffix: str

    async def add_to(self, result: AgentResult, messages: Iterable[InboundMessage], text: str) -> AgentResult:
        """Return the result with a recording of `text` if a message has one. An answer that cannot
        be spoken stays a text."""
        spoken = speakable(text) if any(_has_recording(message) for message in messages) else ""
        if not spoken or result.outcome != "done":
            return result
        try:
            data = await self.voice.speak(spoken)
            ref = await asyncio.to_thread(self.media.put, self.session, data, f"answer.{self.suffix}")
        except ModelError as exc:
            self._warn(exc.kind)
        except BadInput as exc:
            self._warn(exc.code)
        except OSError as exc:
            self._warn(type(exc).__name__)
        else:
            if ref.kind.is_recording:
                return replace(result, media=(*result.media, str(ref)))
            self._warn("bad_reply")
        return result

    def _warn(self, kind: str) -> None:
        log.warning("answer not spoken", kind=kind, session=log_id(self.session))


def _has_recording(message: InboundMessage) -> bool:
    for one in message.media:
        with contextlib.suppress(BadInput):
            if one.startswith(PREFIX) and read_reference(one).kind.is_recording:
                return True
    return False
