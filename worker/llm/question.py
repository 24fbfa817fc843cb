"""One question to the model of the settings, as a turn asks, and what its fault means for
people."""

from __future__ import annotations

import time
from typing import Final

from msgspec.structs import replace

from shared.errors import ModelError, SettingsError
from shared.settings import ModelSettings
from shared.terminal_text import brief, clean_line
from worker.agent.model.model import ModelRequest
from worker.llm.registry import DEMO, Models, checked_preset

QUESTION: Final = "Say OK."
WITHIN_S: Final = 30.0
_SHOWN_CHARS: Final = 80


async def ask_once(settings: ModelSettings, *, within_s: float = WITHIN_S) -> str:
    """Ask the first model one thing, with the limits of a turn, and return its answer. There is no
    second try, and no fallback. Raises ModelError, SettingsError."""
    models = Models(replace(settings, fallbacks=(), retry_waits_s=(), first_token_s=within_s, total_s=within_s))

    async def ignore(_delta: str) -> None:
        """Be there: a turn asks for a stream, too."""

    try:
        limits = await models.limits_of()
        messages = [{"role": "user", "content": QUESTION}]
        request = ModelRequest(
            messages,
            max_tokens=limits.max_tokens,
            temperature=limits.temperature,
            top_p=limits.top_p,
            seed=limits.seed,
        )
        return (await models.get().chat(request, ignore)).content or ""
    finally:
        await models.close()


async def try_preset(settings: ModelSettings, preset: str) -> tuple[bool, str]:
    """Do the same with a preset of these settings; "" is the usual model."""
    if not preset:
        return await try_model(settings)
    if preset not in settings.presets:
        return False, f"the worker's settings have no preset {preset!r}: start the workers again"
    try:
        return await try_model(checked_preset(settings, preset))
    except SettingsError as exc:
        return False, str(exc)


async def try_model(settings: ModelSettings, *, within_s: float = WITHIN_S) -> tuple[bool, str]:
    """Return whether the model answers, and for people what came."""
    if settings.name == DEMO:
        return True, "the demo is built in, and asks nobody"
    started = time.monotonic()
    try:
        text = clean_line(await ask_once(settings, within_s=within_s))
    except SettingsError as exc:
        return False, str(exc)
    except ModelError as exc:
        return False, describe_fault(settings, exc, within_s=within_s)
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]} …"
    return True, f"{settings.name!r} said {shown!r} after {brief(time.monotonic() - started)}"


def describe_fault(settings: ModelSettings, fault: ModelError, *, within_s: float = WITHIN_S) -> str:
    """Return what a fault means, with the provider's own words."""
    where = settings.api_base or "the provider"
    advice = {
        "auth": "the key is wrong, or may not use this model",
        "billing": "the account behind the key has no money left",
        "bad_request": "there is no model of this name, or the address is that of something else",
        "connection": f"no connection to {where}",
        "timeout": f"{where} did not answer within {within_s:g} s",
        "rate_limit": f"{where} refuses further calls for now: wait, or look at your plan and its credit",
    }.get(fault.kind, "it cannot be used now")
    text = clean_line(fault.reason)
    if settings.api_key is not None:
        text = text.replace(settings.api_key.reveal(), "[the key]")
    quote = f"; it says: {text}" if text else ""
    return f"{advice} ({fault}{quote})"
