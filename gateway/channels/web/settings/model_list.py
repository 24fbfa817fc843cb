"""`/settings/models`: the models, by which way they are reached, and one question to each. A worker
is asked: it has the keys and the way to the providers, and a gateway may have neither."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request

from gateway.channels.web.http.auth import OWNER
from gateway.channels.web.http.first_run import BODY_BYTES, FirstRun, InitCommand
from gateway.channels.web.settings.answers import Refusal, read_json
from shared.errors import ReplyError
from shared.log import logger
from shared.messages.model_waits import why_waiting
from shared.redaction import redacted
from shared.settings import Settings, own_key_file
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.provider_limits import RouteReading, read_routes
from shared.store.jobs.questions import ask_worker

LIST_WITHIN_S: Final = 5.0
TEST_WITHIN_S: Final = 40.0  # a worker gives its model 30 s

log = logger("web")


class _NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[\x21-\x7e]+$")]


class ModelsPart:
    """Lists and tests models, and replaces the key of the usual one where `shoal up` can start all
    again."""

    def __init__(self, client: RedisClient, settings: Settings, first_run: FirstRun | None) -> None:
        self._client = client
        self._model = settings.model
        self._first_run = first_run
        self._init = InitCommand()
        self._one = asyncio.Lock()
        self._replaceable = settings.web.replace_key and own_key_file(settings) is not None

    async def list_models(self, principal: str, request: Request) -> dict[str, Any]:
        """Return what the person may choose, and for the owner all that is known of each."""
        if principal != OWNER:
            chosen = [{"preset": name, "about": one.about} for name, one in self._model.presets.items()]
            return {"models": [{"preset": "", "about": ""}, *chosen]}
        cards = await self._ask_for_cards()
        return {
            "models": await self._with_states(cards or self._known_here()),
            "asked": cards is not None,
            "first_run": self._first_run is not None and self._first_run.offered_to(principal),
            "replace_key": self._replaceable,
        }

    async def test_model(self, principal: str, request: Request) -> dict[str, Any]:
        """Have a worker ask a model one thing; `text` is its answer, or why there is none."""
        preset = request.query_params.get("preset", "")
        if preset and preset not in self._model.presets:
            raise Refusal(404, "there is no such preset")
        # Without a preset also a worker of an older release can answer.
        named = [preset] if preset else []
        result = await ask_worker(self._client, "ask_model", *named, within_s=TEST_WITHIN_S)
        if result is None:
            return {"ok": False, "text": "no worker took the question in time; is one running?"}
        if not result.success:
            return {"ok": False, "text": "the worker could not ask; it may be of an older release"}
        answered, text = result.result
        return {"ok": bool(answered), "text": redacted(str(text))}

    async def replace_key(self, principal: str, request: Request) -> dict[str, Any]:
        """Test the usual model with another key, and keep it in its file; `shoal up` then starts
        the workers again."""
        if not self._replaceable:
            raise Refusal(404, "the key of this installation is replaced by its operator, in its settings")
        new = await read_json(request, _NewKey, BODY_BYTES, "a key is one line without blanks")
        # One after another: the key that was sent last is the one that stays.
        async with self._one:
            fault = await self._init.run("--replace-key", "--json", "--key-file=-", secret=new.key)
        log.info("key replaced" if not fault else "key refused")
        if fault:
            raise Refusal(422, fault)
        return {"written": True}

    async def _ask_for_cards(self) -> list[dict[str, Any]] | None:
        result = await ask_worker(self._client, "list_models", within_s=LIST_WITHIN_S)
        # An older worker does not know the question.
        return result.result if result is not None and result.success else None

    def _known_here(self) -> list[dict[str, Any]]:
        """Return what the gateway's own settings say: names alone."""
        names = [("usual", "", self._model.name)]
        names += [("preset", name, one.name) for name, one in self._model.presets.items()]
        names += [("fallback", "", name) for name in self._model.fallbacks]
        return [{"role": role, "preset": preset, "model": model} for role, preset, model in names]

    async def _with_states(self, cards: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        ways = sorted({card["route"] for card in cards if card.get("route")})
        found: dict[str, RouteReading] = {}
        with suppress(ReplyError):  # an older list of Redis' users does not let a gateway read it
            found = {one.route: one for one in await read_routes(self._client, ways)}
        return [self._shown(card, found.get(card.get("route", ""))) for card in cards]

    def _shown(self, card: dict[str, Any], state: RouteReading | None) -> dict[str, Any]:
        preset = self._model.presets.get(card["preset"])
        shown = {name: value for name, value in card.items() if name != "route"}
        if state is not None:
            why = why_waiting(state.why, state.wait_s) if state.state == "closed" else ""
            shown |= {"state": state.state, "why": why, "refused": state.refused}
        return shown | {"about": preset.about if preset else "", "toml": _key_lines(card)}


def _key_lines(card: dict[str, Any]) -> str:
    """Return the lines of shoal.toml that give a model its key, from a file."""
    if card["role"] == "preset":
        # A name may have dots, which TOML would read as tables.
        return f'[model.presets.{json.dumps(card["preset"])}]\napi_key_file = "secrets/{card["preset"]}.key"'
    if card["role"] == "fallback":
        provider = card.get("provider") or card["model"].partition("/")[0]
        return f'[model.fallback_keys]\n{json.dumps(provider)} = "${{{_variable(provider)}}}"'
    return '[model]\napi_key_file = "secrets/model.key"'


def _variable(provider: str) -> str:
    return f"{''.join(one if one.isalnum() else '_' for one in provider.upper())}_API_KEY"
