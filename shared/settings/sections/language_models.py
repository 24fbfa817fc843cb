"""Settings of language models: `[model]` and its presets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from shared.settings.secret import Secret
from shared.settings.sections.kinds import Count, Seconds, Text

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.IGNORECASE)
"""Form of the names of presets and of principals."""
TopP = Annotated[float, Meta(gt=0, le=1)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""Some providers take 32 bits, with a sign."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


class PresetSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Another model that a person may choose in a chat. Missing keys are taken from `[model]`.
    Without its own `api_base` and `api_key` it is reached as a fallback would be. Without `tools`
    it answers with text alone, after a short system text: for titles and the like."""

    name: Text
    api_base: Text | None = None
    api_key: Secret | None = None
    client: Literal["auto", "litellm", "direct"] | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    tools: bool = True
    about: str = ""


RequestPart = Literal[
    "images",
    "calls_without_thoughts",
    "reasoning_content",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "seed",
    "tool_choice",
    "tools",
]
"""A part of requests that some models refuse."""


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The language model. `name` is a LiteLLM name, or `demo` for the built-in one that needs no
    network.

    `fallbacks` are tried in order when it cannot answer; `fallback_keys` has the keys of those at
    other providers. `headers` are sent with every request to `api_base`; `traceparent` adds the
    trace context. `top_p` and `seed` are sent where they are set; a model that refuses one is asked
    without it. `context_tokens` None, and prices missing in `prices` (USD per million tokens, in
    and out), are looked up in built-in tables; `context_default` is the context of a model that
    none of them has. `omit` has, by the name of a model, the parts of requests that it does not take;
    `max_tokens` and `max_completion_tokens` are then replaced by each other. With `continue_partial`
    an answer whose worker or stream dies goes on with the text that is there. `requests_per_minute`
    limits the whole fleet for one key. After `breaker_after` faults of several sessions in a row a
    circuit breaker stops calls to the provider, but one every 5 s. A 429 that names no time stops
    them for up to `breaker_s`."""

    name: Text = "demo"
    api_base: Text | None = None
    api_key: Secret | None = None
    client: Literal["auto", "litellm", "direct"] = "auto"
    fallbacks: tuple[str, ...] = ()
    fallback_keys: dict[str, Secret] = {}
    headers: dict[str, Secret] = {}
    traceparent: bool = False
    max_tokens: Count = 4096
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.7
    top_p: TopP | None = None
    seed: Seed | None = None
    first_token_s: Seconds = 60.0
    between_tokens_s: Seconds = 60.0
    total_s: Seconds = 300.0
    retry_waits_s: tuple[Seconds, ...] = (1.0, 2.0, 4.0)
    context_tokens: Count | None = None
    context_default: Count = 32_768
    prices: dict[str, tuple[float, float]] = {}
    omit: dict[str, tuple[RequestPart, ...]] = {}
    continue_partial: bool = True
    requests_per_minute: Count | None = None
    breaker_after: Count = 5
    breaker_s: Seconds = 30.0
    presets: dict[str, PresetSettings] = {}


class VoiceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Voice notes and other recordings. `model` writes down what is said in them, at an endpoint of
    OpenAI's form (`<api_base>/audio/transcriptions`); without it they are only files. A missing
    `api_base` and `api_key` are those of `[model]`. `language` is the language that people speak,
    as `en`; without it the model finds out. `show` puts the text into the chat, so that people see
    what was understood. A recording over `file_mb` is not sent.

    `speaker` is the model that speaks, with `speaker_voice`, at `<api_base>/audio/speech`: in chats
    that want it (`/voice on`) a recording is answered by a recording in `speaker_format`, beside
    the text."""

    model: str = ""
    api_base: Text | None = None
    api_key: Secret | None = None
    language: str = ""
    timeout_s: Seconds = 60.0
    file_mb: Count = 25
    show: bool = True
    speaker: str = ""
    speaker_voice: Text = "alloy"
    speaker_format: Literal["opus", "mp3", "wav", "flac"] = "opus"


def voice_problems(voice: VoiceSettings, model: ModelSettings) -> Iterator[str]:
    """Yield a line for each conflict between settings that are valid one by one."""
    if (voice.model or voice.speaker) and voice.api_base is None and model.api_base is None:
        which = "model" if voice.model else "speaker"
        yield f"voice.{which} is set, but no address is: set voice.api_base, such as https://api.openai.com/v1"
    if not re.fullmatch(r"([a-z]{2,3}(-[A-Za-z0-9]{2,8})?)?", voice.language):
        yield f"voice.language is {voice.language!r}; write a code such as en or pt-BR, or leave it out"


def model_problems(model: ModelSettings) -> Iterator[str]:
    """Yield a line for each conflict between settings that are valid one by one."""
    if model.total_s < model.first_token_s:
        yield ("model.total_s is shorter than model.first_token_s; a model could never use its time, raise it")


def http_url_problem(value: str | None) -> str | None:
    """Check a whole HTTP address."""
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        fine = False
    return None if fine else f"is {value!r}; write a whole address such as https://host/v1"


def headers_problem(value: dict[str, Secret]) -> str | None:
    """Check names and values of HTTP headers."""
    for name, text in value.items():
        if not is_header(name, text.reveal()):
            return f"has {name!r}, which no HTTP request can carry; write a plain name and a value in ASCII"
    return None


def is_header(name: str, value: str) -> bool:
    """Tell whether an HTTP request can carry a header."""
    return bool(_HEADER.fullmatch(name)) and value.isascii() and value.isprintable()


def presets_problem(value: dict[str, object]) -> str | None:
    """Check the names of presets."""
    for name in value:
        if not NAME.fullmatch(name) or name.casefold() == "default":
            return f"has the name {name!r}; use letters, digits, dots and dashes, and not 'default', the usual model"
    return None
