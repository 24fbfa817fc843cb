"""Recordings to text, and text to recordings, by an endpoint of OpenAI's form."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from shared.errors import ModelError
from shared.log import logger
from shared.media.reference import MediaRef
from shared.settings import ModelSettings
from shared.settings.sections.language_models import VoiceSettings
from shared.version import VERSION
from worker.llm.clients.direct_client import CONNECTIONS, ERROR_LIMIT_BYTES, read_body
from worker.llm.clients.faults import kind_of_refusal, model_error, retry_after_s
from worker.llm.clients.reasons import read_reason

RETRY_WAITS_S: Final = (1.0, 3.0)
LONGEST_WAIT_S: Final = 15.0  # of a Retry-After: a person waits for the answer
TEXT_CHARS: Final = 20_000
SPEECH_CHARS: Final = 4000  # OpenAI takes 4,096
_SPEECH_LIMIT_BYTES: Final = 16 * 1024 * 1024
_BODY_LIMIT_BYTES: Final = 4 * 1024 * 1024
_MB: Final = 1024 * 1024

log = logger("models")

T = TypeVar("T")


class _Answer(msgspec.Struct):
    text: str


class VoiceClient:
    """Asks the models of `[voice]`, at their own address and with their own key or at those of
    `[model]`."""

    def __init__(self, settings: VoiceSettings, model: ModelSettings) -> None:
        self._settings = settings
        own = settings.api_base is not None
        self._base = (settings.api_base or model.api_base or "").rstrip("/")
        key = settings.api_key if own or settings.api_key is not None else model.api_key
        self._headers = {"User-Agent": f"shoal/{VERSION}"}
        if not own:
            self._headers |= {name: value.reveal() for name, value in model.headers.items()}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key.reveal()}"

    async def transcribe(self, ref: MediaRef, data: bytes) -> str:
        """Return what is said, at most TEXT_CHARS of it, `""` for silence. A fault that may pass is
        met by two more tries. Raises ModelError."""
        settings = self._settings
        if len(data) > settings.file_mb * _MB:
            what = f"{len(data):,} bytes are over voice.file_mb"
            raise model_error(settings.model, "bad_request", what)

        async def ask() -> str:
            form = aiohttp.FormData()
            form.add_field("model", settings.model)
            form.add_field("response_format", "json")
            if settings.language:
                form.add_field("language", settings.language)
            # The suffix tells the endpoint the format, and a name of the sender's may say too much.
            form.add_field("file", data, filename=f"recording.{ref.suffix}", content_type=ref.kind.media_type)
            body = await self._post(settings.model, "transcriptions", _BODY_LIMIT_BYTES, data=form)
            try:
                return msgspec.json.decode(body, type=_Answer).text.strip()
            except (ValueError, msgspec.DecodeError) as exc:
                raise model_error(settings.model, "bad_reply", type(exc).__name__) from None

        return (await _with_retries(ask))[:TEXT_CHARS]

    async def speak(self, text: str) -> bytes:
        """Return a recording of the text, of which at most SPEECH_CHARS are sent. Faults as for
        `transcribe`."""
        settings = self._settings
        body = {
            "model": settings.speaker,
            "voice": settings.speaker_voice,
            "input": text[:SPEECH_CHARS],
            "response_format": settings.speaker_format,
        }

        async def ask() -> bytes:
            data = await self._post(settings.speaker, "speech", _SPEECH_LIMIT_BYTES, json=body)
            if not data:
                raise model_error(settings.speaker, "bad_reply", "an empty recording")
            return data

        return await _with_retries(ask)

    async def _post(self, name: str, path: str, limit_bytes: int, **body: Any) -> bytes:
        timeout_s = self._settings.timeout_s
        url = f"{self._base}/audio/{path}"
        try:
            async with (
                asyncio.timeout(timeout_s),
                CONNECTIONS.session().post(url, headers=self._headers, allow_redirects=False, **body) as response,
            ):
                if response.status != 200:
                    reason = (await read_body(response, ERROR_LIMIT_BYTES)).decode(errors="replace")
                    kind = kind_of_refusal(response.status, reason)
                    wait_s = retry_after_s(response.headers)
                    raise model_error(name, kind, response.status, retry_after_s=wait_s, reason=read_reason(reason))
                return await read_body(response, limit_bytes)
        except TimeoutError:
            raise model_error(name, "timeout", f"no answer within {timeout_s:g} s") from None
        except aiohttp.ClientError as exc:
            raise model_error(name, "connection", type(exc).__name__) from None
        except ValueError as exc:
            raise model_error(name, "bad_reply", type(exc).__name__) from None


async def _with_retries(ask: Callable[[], Awaitable[T]]) -> T:
    for wait_s in (*RETRY_WAITS_S, None):
        try:
            return await ask()
        except ModelError as exc:
            if wait_s is None or not exc.retryable:
                raise
            await asyncio.sleep(min(max(wait_s, exc.retry_after_s or 0.0), LONGEST_WAIT_S))
    raise AssertionError("unreachable")
