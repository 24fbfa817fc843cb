"""How a channel joins the suite: a *bench*, a platform on this machine that the suite can play on.

A bench is a fake server in its own right (`tests/fakes/<name>.py`), spoken to by the channel's real SDK, and a small
object that fits `ChannelBench`. Everything else is the suite's: it starts real gateways (`python -m gateway <name>` in
processes of their own, or the same parts in this one) with the settings of `table()`, lets people write, scripts
faults, and compares what people see with what was said.

To join, write `tests/contracts/channels/benches/<name>.py`, 60 to 100 lines, with

    BENCHES = {"telegram, exclusive": open_polling, "telegram, webhook": open_webhook}

one entry for each run mode of the channel, named `<channel>, <run mode>` (and perhaps more behind another comma); each
value is an async context manager function without arguments that yields the bench. Files in that folder are found by
themselves, so no other file is touched. `benches/pond.py` is the example; `pytest tests/contracts/channels -k telegram`
runs the suite for one channel. A bench that sends in the same way as another one of its platform goes into SAME_WAY_OUT
of `conftest.py`: tests of the way out leave it out.

What the suite relies on:

- `table()` is the channel's section of shoal.toml, as an operator would write it, with the addresses of the fake
  in place of the real ones (a channel has a setting for its API's address; self-hosted API servers need it, too), the
  chosen `run`, and `allow_from` with the ids of PEOPLE people. Timeouts in it are short (a second or two).
- Chats have numbers. `chat(n)` is the chat of two of person n (0 <= n < PEOPLE), `chat(n, group=True)` a group, both as
  `InboundMessage.chat_id` will have them. Each group is in `allow_groups`. Where a platform's session has a thread,
  `session()` says so.
- Nothing is shared between two benches; a bench may be opened many times in one run. A port is always 0.
- A fake holds each call open as the real one would: one that hangs, hangs until the client gives up.
- A fake refuses what the real platform refuses: too long a text, broken markup, an unknown chat, a bad token. It counts
  nothing and paces nothing unless `fault` asks for it.
- A fake knows the key of a post exactly as far as the real platform does (`Abilities.resend_guard`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, Protocol

import msgspec

from gateway.platform.protocol import HookRequest, RunMode
from tests.contracts.channels import benches

PEOPLE: Final = 40
"""Persons 0 to 39 may write to the bot, each in a chat of their own."""

Signing = Literal["good", "none", "blank", "wrong", "old", "changed"]
"""How a webhook call is signed: well; without a signature; with an empty one; with another secret; well, but 301
seconds ago (where the platform signs a time); well, and then one byte of the body was changed."""

FaultKind = Literal[
    "throttled", "throttled bot", "markup", "refused", "closed", "down", "unheard", "unanswered", "stored", "hang"
]
"""What the platform does with a call:

- throttled: 429 with `retry_after_s` for this chat; throttled bot: for everything the bot does
- markup: 400, the markup cannot be read; only a call without markup passes
- refused: 400 for this post, and no other form of it would pass
- closed: 403, the bot was blocked or put out; until `heal`
- down: 500 or 503 at once, or no connection
- unheard: the connection is cut before the platform took the post, without an answer
- unanswered: the platform takes the post and shows it; then the connection is cut without an answer
- stored: the platform takes the post and shows it; then 502, or a failure that means "try again" where there is no HTTP
- hang: the platform does not take it and says nothing until the client gives up
"""

CallKind = Literal["send", "edit", "typing"]


class SentFile(msgspec.Struct, frozen=True):
    """A file that a person attaches."""

    name: str
    media_type: str
    data: bytes


class PersonAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action of a person on the platform.

    `id` names the message within the bench: the same one again is the same message delivered again,
    and `edit` and `delete` name the message that they change. `by`: the person of the chat,
    somebody who is not in `allow_from`, another bot, or the bot itself (its own message comes
    back). `addressed`: in a group, with a mention of the bot. `press`: the person presses the
    button of the newest message in the chat that says `text`. `album`: sent as one with the other
    messages of that name.
    """

    chat: str
    text: str = ""
    id: str
    does: Literal["message", "edit", "delete", "press"] = "message"
    by: Literal["person", "stranger", "bot", "self"] = "person"
    group: bool = False
    addressed: bool = True
    files: tuple[SentFile, ...] = ()
    album: str = ""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """The next `times` calls of this kind (in this chat, or in any) go wrong; -1 = all until `heal`."""

    kind: FaultKind
    call: CallKind = "send"
    chat: str | None = None
    times: int = 1
    retry_after_s: float = 0.3


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the bot as the person sees it at this moment: `text` without markup, `markup` whether there was any
    (a bold word counts), `edits` how often it was changed, `file` the bytes of one that was sent. `reply_to` is the
    `Told.id` of the message that it is shown as an answer to."""

    id: str
    text: str
    markup: bool = False
    buttons: tuple[str, ...] = ()
    reply_to: str | None = None
    file: bytes | None = None
    edits: int = 0


class Call(msgspec.Struct, frozen=True):
    """A call that reached the platform, refused ones too. `at` is `time.monotonic()`."""

    at: float
    kind: CallKind
    chat: str


class ChannelBench(Protocol):
    """A platform to play on. Nothing here waits for the gateway."""

    @property
    def name(self) -> str:
        """The channel's name."""
        ...

    @property
    def run_mode(self) -> RunMode: ...

    @property
    def cannot(self) -> frozenset[str]:
        """What this platform has no form of, out of: FaultKind's, "edit" and "delete" (of a person's message), "group",
        "bot" (others' bots can be told), "self", "typing", "reply_to", "press", "files", and the Signing's that make
        no sense there. Tests that need it are skipped by name. Empty for most."""
        ...

    def table(self) -> dict[str, Any]:
        """The settings `[channels.<name>]` that lead to this fake."""
        ...

    @property
    def path(self) -> tuple[str, ...]:
        """Folders in which Python must look for the channel's package; () for the channels of Shoal itself."""
        ...

    def chat(self, number: int, *, group: bool = False) -> str:
        """A chat id, as `InboundMessage.chat_id`."""
        ...

    def session(self, chat: str) -> str:
        """The session of what person writes there: `shared.ids.session_id(self.name, chat)` unless there is a
        thread."""
        ...

    async def tell(self, action: PersonAction) -> None:
        """Make it happen, for the run modes socket and exclusive: listeners get it, in the order of the calls, as soon
        as there is one; what no listener has confirmed is told again as the real platform would."""
        ...

    def hook(self, action: PersonAction, signing: Signing = "good") -> HookRequest:
        """The call of the webhook that the platform would make for it (run mode webhook). `path` is ignored."""
        ...

    def handshake(self) -> tuple[HookRequest, bytes] | None:
        """The call by which the platform checks a new webhook, and the body it wants as the answer; None = it has
        none."""
        ...

    def fault(self, fault: Fault) -> None:
        """Script a fault; several wait in order."""
        ...

    def heal(self) -> None:
        """Forget all faults."""
        ...

    def shown(self, chat: str) -> Sequence[Shown]:
        """What the bot said there, in the order of the chat, edits applied, deleted ones left out."""
        ...

    def calls(self) -> Sequence[Call]:
        """Every call so far, oldest first."""
        ...

    def listeners(self) -> int:
        """How many connections listen at this moment: polls under way, open sockets."""
        ...


OpenBench = Callable[[], AbstractAsyncContextManager[ChannelBench]]


def all_benches() -> dict[str, OpenBench]:
    """Every bench there is, by its name."""
    found: dict[str, OpenBench] = {}
    for module in sorted(pkgutil.iter_modules(benches.__path__), key=lambda one: one.name):
        made: Mapping[str, OpenBench] = importlib.import_module(f"{benches.__name__}.{module.name}").BENCHES
        assert not found.keys() & made.keys(), (
            f"{module.name} names a bench that there is: {found.keys() & made.keys()}"
        )
        found |= made
    return found
