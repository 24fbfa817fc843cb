"""First run: the owner of a page that the demo model answers chooses a real model. `shoal init`, a
process of its own, tests it and writes the settings; `shoal up` then starts what runs again."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from gateway.channels.web.http.auth import OWNER, Principals, origin_allowed
from gateway.channels.web.http.rates import PrincipalRates
from gateway.channels.web.http.responses import content_length, problem
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import Refused
from shared.log import logger
from shared.settings import child_environment

SETTINGS_FILE: Final = Path("shoal.toml")
BODY_BYTES: Final = 16 * 1024
WITHIN_S: Final = 120.0
ERROR_CHARS: Final = 600
INIT: Final = (sys.executable, "-m", "console", "init")
_Name = Annotated[str, Meta(max_length=500, pattern=r"^[^\x00-\x1f]*$")]

log = logger("web")


class _Choice(Struct, frozen=True, forbid_unknown_fields=True):
    provider: Literal["anthropic", "openai", "openrouter", "ollama", "vllm", "own"]
    model: _Name
    api_base: _Name = ""
    key: _Name = ""


class FirstRun:
    """The route `POST /first-run`. It is made only where the demo model answers and `shoal up`
    can start it all again, and works while no settings file exists in the folder."""

    def __init__(
        self,
        principals: Principals,
        *,
        command: tuple[str, ...] = INIT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._principals = principals
        self._init = InitCommand(command)
        self._one = asyncio.Lock()
        self._rates = PrincipalRates(burst=5, per_s=1 / 12, clock=clock)

    def offered_to(self, principal: str) -> bool:
        """Tell whether a principal may choose the model now."""
        return principal == OWNER and not SETTINGS_FILE.exists()

    async def choose(self, request: Request) -> Response:
        """Handle the request: a provider, a model, perhaps an address and a key, as JSON."""
        # Stricter than for files: other pages may write messages, but not say where keys are sent.
        # A program on this machine, which sends no origin, has `shoal init`.
        if "origin" not in request.headers or not origin_allowed(request.headers, ()):
            return problem(403, "only the page itself may do that")
        try:
            login = self._principals.bearer(request)
        except Refused as exc:
            return problem(429, exc.message, {"Retry-After": "60"})
        if login is None:
            return problem(401, "sign in first", {"WWW-Authenticate": "Bearer"})
        if not self.offered_to(login.principal):
            return problem(404)
        if self._rates.try_acquire(login.principal) > 0:
            return problem(429, "too many tries; wait a minute", {"Retry-After": "60"})
        if not 0 < (content_length(request) or 0) <= BODY_BYTES:
            return problem(413)
        try:
            choice = msgspec.json.decode(await request.body(), type=_Choice)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            return problem(400, f"this is not a choice of a model: {exc}")
        async with self._one:
            options = [f"--provider={choice.provider}", f"--model={choice.model}", "--json"]
            options += [f"--api-base={choice.api_base}"] if choice.api_base else []
            options += ["--key-file=-"] if choice.key else []
            fault = await self._init.run(*options, secret=choice.key)
        log.info("model chosen", provider=choice.provider, accepted=not fault)
        return problem(422, fault) if fault else Response(b'{"written":true}', 200, media_type="application/json")


class InitCommand:
    """Runs `shoal init`, a process of its own, which gets a secret by a pipe."""

    def __init__(self, command: tuple[str, ...] = INIT) -> None:
        self._command = command

    async def run(self, *options: str, secret: str) -> str:
        """Return why nothing was written, or ""."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command, *options, stdin=pipe, stdout=pipe, stderr=pipe, env=child_environment({})
        )
        try:
            async with asyncio.timeout(WITHIN_S):
                _, errors = await process.communicate(secret.encode())
        except TimeoutError:
            return f"the test did not end within {WITHIN_S:g} s"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode == 0:
            return ""
        lines = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
        fault = lines[-1].removeprefix("Error: ") if lines else f"shoal init ended with code {process.returncode}"
        return (fault.replace(secret, "…") if secret else fault)[:ERROR_CHARS]
