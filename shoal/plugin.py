"""The only names of Shoal that a package with tools, hooks, chat commands or a channel may rely on;
docs/plugins.md and docs/channels.md explain them. Each is loaded on first use, so that a gateway
loads nothing of what only workers need, and a worker nothing of a gateway."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # Type checkers read these lines, Python the table below; a test holds the two together.
    from gateway.commands.command import Command as Command
    from gateway.commands.command import CommandAnswer as CommandAnswer
    from gateway.commands.command import CommandContext as CommandContext
    from gateway.platform.access import AccessSettings as AccessSettings
    from gateway.platform.access import IdForm as IdForm
    from gateway.platform.access import read_channel as read_channel
    from gateway.platform.protocol import Abilities as Abilities
    from gateway.platform.protocol import Button as Button
    from gateway.platform.protocol import ChannelBroken as ChannelBroken
    from gateway.platform.protocol import ChatClosed as ChatClosed
    from gateway.platform.protocol import File as File
    from gateway.platform.protocol import HookAnswer as HookAnswer
    from gateway.platform.protocol import HookRequest as HookRequest
    from gateway.platform.protocol import Inlet as Inlet
    from gateway.platform.protocol import InletVerdict as InletVerdict
    from gateway.platform.protocol import MarkupRefused as MarkupRefused
    from gateway.platform.protocol import MaybeSent as MaybeSent
    from gateway.platform.protocol import NotAccepted as NotAccepted
    from gateway.platform.protocol import Piece as Piece
    from gateway.platform.protocol import Platform as Platform
    from gateway.platform.protocol import PlatformMessage as PlatformMessage
    from gateway.platform.protocol import Post as Post
    from gateway.platform.protocol import PostRefused as PostRefused
    from gateway.platform.protocol import PostTarget as PostTarget
    from gateway.platform.protocol import Rate as Rate
    from gateway.platform.protocol import RemoteFile as RemoteFile
    from gateway.platform.protocol import RunMode as RunMode
    from gateway.platform.protocol import Throttled as Throttled
    from gateway.platform.registry import BuiltPlatform as BuiltPlatform
    from gateway.platform.registry import Cursor as Cursor
    from gateway.platform.registry import PlatformContext as PlatformContext
    from shared.errors import BadInput as BadInput
    from shared.errors import RedisAway as RedisAway
    from shared.errors import Refused as Refused
    from shared.errors import SettingsError as SettingsError
    from shared.errors import ToolFailed as ToolFailed
    from shared.messages.inbound import InboundMessage as InboundMessage
    from shared.network.http_client import open_session as open_session
    from shared.network.outgoing import for_channel as for_channel
    from shared.settings import Secret as Secret
    from shared.tasks import cancel_all as cancel_all
    from worker.agent.hook import AgentHook as AgentHook
    from worker.agent.hook import Iteration as Iteration
    from worker.agent.hook import IterationDone as IterationDone
    from worker.agent.hook import ToolRun as ToolRun
    from worker.agent.ports import Safety as Safety
    from worker.agent.tools.tool import Tool as Tool
    from worker.agent.tools.tool import ToolContext as ToolContext

HOMES: Final[dict[str, str]] = {
    "gateway.commands.command": "Command CommandAnswer CommandContext",
    "gateway.platform.access": "AccessSettings IdForm read_channel",
    "gateway.platform.protocol": (
        "Abilities Button ChannelBroken ChatClosed File HookAnswer HookRequest Inlet InletVerdict MarkupRefused "
        "MaybeSent NotAccepted Piece Platform PlatformMessage Post PostRefused PostTarget Rate RemoteFile RunMode "
        "Throttled"
    ),
    "gateway.platform.registry": "BuiltPlatform Cursor PlatformContext",
    "shared.errors": "BadInput RedisAway Refused SettingsError ToolFailed",
    "shared.messages.inbound": "InboundMessage",
    "shared.network.http_client": "open_session",
    "shared.network.outgoing": "for_channel",
    "shared.settings": "Secret",
    "shared.tasks": "cancel_all",
    "worker.agent.hook": "AgentHook Iteration IterationDone ToolRun",
    "worker.agent.ports": "Safety",
    "worker.agent.tools.tool": "Tool ToolContext",
}
"""The module that defines each name."""

_HOME_OF: Final = {name: home for home, names in HOMES.items() for name in names.split()}


if not TYPE_CHECKING:  # else a type checker would accept every name

    def __getattr__(name: str) -> object:
        """Load a name on first use. Raises AttributeError for one that is not of the surface."""
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module 'shoal.plugin' has no attribute {name!r}; docs/plugins.md lists what it has")
        value = globals()[name] = getattr(import_module(home), name)
        return value


def __dir__() -> list[str]:
    return sorted(_HOME_OF)
