"""Words with a slash that the terminal handles itself; every other one goes to the gateway."""

from __future__ import annotations

import re
from typing import Final

CHAT_NAME: Final = re.compile("[A-Za-z0-9_-]{1,64}")

LEAVE: Final = ("/quit", "/exit")
ATTACH: Final = "/attach"
SESSIONS: Final = "/sessions"
WITH_ARGUMENT: Final = (ATTACH, SESSIONS)
LOCAL_COMMANDS: Final = (ATTACH, SESSIONS, *LEAVE)
LOCAL_HELP: Final = (
    "here also: /attach FILE, /sessions [CHAT], /quit; Alt-Enter or Esc Enter for a new line, "
    "Ctrl-X Ctrl-E for your editor, Esc stops the answer"
)
