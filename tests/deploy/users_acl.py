"""deploy/redis/users.acl, made of what the code of each role says to Redis: `python -m tests.deploy.users_acl` writes
it; a test compares."""

from __future__ import annotations

import tempfile
import textwrap
from pathlib import Path
from typing import Final

from shared.embedded import EmbeddedValkey
from tests.helpers.reach import reach
from tests.helpers.valkey import command

FILE: Final = Path(__file__).parents[2] / "deploy" / "redis" / "users.acl"
PACKAGES: Final = {"gateway": "gateway", "worker": "worker", "console": "console"}

DONE_WITHOUT: Final = {"ACL", "CLIENT", "CONFIG", "HELLO", "READONLY", "SELECT"}
"""Named in the code, and not allowed: of the first two only DRYRUN and SETNAME are, `shoal doctor` lives without
CONFIG, every connection may send HELLO whatever its rights, READONLY is the name of an error, Shoal has database 0."""

BESIDE: Final = {
    "gateway": {"AUTH", "PING", "CLIENT|SETNAME", "ACL|DRYRUN", "SUBSCRIBE", "UNSUBSCRIBE"},
    "worker": {
        *("AUTH", "PING", "CLIENT|SETNAME", "ACL|DRYRUN", "SUBSCRIBE", "UNSUBSCRIBE"),
        *("MULTI", "EXEC", "WATCH", "UNWATCH", "PSETEX", "INCRBY"),
    },
    "console": {"AUTH", "PING", "CLIENT|SETNAME", "ACL|DRYRUN"},
}
"""Commands of a connection's begin, of redis-py for pub/sub, of arq for a worker, and the question whether a restart
would lose anything: ACL DRYRUN tells what a user may do, and nothing of its password."""

ARQ: Final = {
    "gateway": {"arq:job:*", "arq:result:*"},
    "worker": {"arq:*"},
    "console": {"arq:job:*", "arq:result:*", "arq:retry:*"},
}
WRITES_ONLY: Final = {"gateway": {"shoal:dead", "shoal:audit"}, "worker": {"shoal:audit"}}
"""Keys that a role writes and may not read: a gateway sets aside what a platform did not take, and never looks there;
the audit record is for the console."""

CHANNELS: Final = ("shoal:live:*", "shoal:control")
_HEAD: Final = """\
# Who may say what to Redis: one user a role, and no more than the code of that role says. None may FLUSH, CONFIG, KEYS,
# DEBUG or anything else that changes the server. `render-users` makes the server's ACL file of this.
# Made of the code by `python -m tests.deploy.users_acl`.
#
# The user default is off, so nobody can log in as it, and has every right: Redis replays what scripts and transactions
# wrote (MULTI ... EXEC in the append-only file) with the rights of this user. A server without the fix of redis#14545
# or valkey#3984, such as Redis 7.0.15, drops without a word to us what it may not do: a restart forgets nearly
# everything.
user default off resetchannels ~* &* +@all
user health on nopass resetchannels -@all +ping
"""


def text(known: set[str]) -> str:
    """The template; `known` are the commands that there are, in capitals."""
    return _HEAD + "".join(_user(role, known) for role in PACKAGES)


def _user(role: str, known: set[str]) -> str:
    message = reach(PACKAGES[role])
    commands = (message.commands & known) - DONE_WITHOUT | BESIDE[role]
    # Whoever exports, restores and erases sessions has all their keys. A script is told "no key" by an empty one.
    keys = {"shoal:*"} if role == "console" else message.keys
    lines = [f"user {role} on {{{role}}} resetchannels {' '.join(f'&{one}' for one in CHANNELS)} -@all"]
    for words in (
        ["~", *(_key(role, one) for one in sorted(keys | ARQ[role]))],
        [f"+{one.lower()}" for one in sorted(commands)],
    ):
        lines += textwrap.wrap(" ".join(words), 116, break_long_words=False, break_on_hyphens=False)
    return " \\\n  ".join(lines) + "\n"


def _key(role: str, key: str) -> str:
    return f"%W~{key}" if key in WRITES_ONLY.get(role, ()) else f"~{key}"


def known_commands(url: str) -> set[str]:
    """What the server at `url` knows."""
    return {name.upper() for name in command(url, "COMMAND", "LIST").splitlines()}


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedValkey(Path(folder), fsync="no")
        server.start()
        try:
            FILE.write_text(text(known_commands(server.url)))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
