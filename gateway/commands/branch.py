"""`/branch`: a new chat that begins with what was said in this one."""

from __future__ import annotations

import hashlib
from typing import Final

from gateway.commands.command import CommandContext
from shared.errors import BadInput, Refused
from shared.ids import WEB, split_session
from shared.store.answers.branches import Branches

ELSEWHERE: Final = "A branch is a new chat, and here I cannot open one. On the page and in `shoal chat` I can."
NOTHING: Final = "There is no answer in this chat yet with which a branch could begin."
NAME_CHARS: Final = 12


async def answer_branch(branches: Branches, context: CommandContext) -> str:
    """Make a branch that ends with the newest answer. Its name follows from the message, so the same
    command again finds the branch that is there."""
    message = context.message
    if message.channel != WEB:
        return ELSEWHERE
    _, chat_id = split_session(message.session)
    principal, _, chat = chat_id.rpartition("/")
    to = hashlib.sha256(f"{message.session}\0{message.id}".encode()).hexdigest()[:NAME_CHARS]
    try:
        branch = await branches.make(principal, chat, to)
    except (BadInput, Refused) as exc:
        nothing = isinstance(exc, BadInput) and exc.code == "not_found"
        return NOTHING if nothing else f"I could not make a branch: {exc.message}."
    return (
        f"I made the chat “{branch.title}”. It is in the list of chats on the page; `shoal chat --chat {to}` opens it."
    )
