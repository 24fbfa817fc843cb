"""deploy/redis/users.acl, made of what the code of each role says to Redis: `python -m tests.deploy.users_acl` writes
it; a test compares."""

from __future__ import annotations

import tempfile
import textwrap
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from shared.embedded import EmbeddedValkey
from shared.store.keys import ARQ as ARQ_BEGIN
from shared.store.keys import ARQ_ON_CLUSTER, FLEET
from tests.helpers.reach import reach
from tests.helpers.valkey import command

FILE: Final = Path(__file__).parents[2] / "deploy" / "redis" / "users.acl"
PACKAGES: Final = {"gateway": "gateway", "worker": "worker", "console": "console"}

DONE_WITHOUT: Final = {"ACL", "CLIENT", "CLUSTER", "CONFIG", "HELLO", "READONLY", "SCRIPT", "SELECT"}
"""Named in the code, and not allowed: of ACL, CLIENT, CLUSTER, CONFIG, SCRIPT only DRYRUN, SETNAME, NODES, GET, KILL
are, everybody may send HELLO, READONLY is the name of an error, Shoal has database 0."""

BESIDE: Final = {
    "gateway": {
        "AUTH",
        "PING",
        "CLIENT|SETNAME",
        "ACL|DRYRUN",
        "SCRIPT|KILL",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "CLUSTER|NODES",
    },
    "worker": {
        *("AUTH", "PING", "CLIENT|SETNAME", "ACL|DRYRUN", "SCRIPT|KILL", "SUBSCRIBE", "UNSUBSCRIBE"),
        *("CONFIG|GET", "CLUSTER|NODES", "MULTI", "EXEC", "WATCH", "UNWATCH", "PSETEX", "INCRBY"),
    },
    "console": {"AUTH", "PING", "CLIENT|SETNAME", "CONFIG|GET", "CLUSTER|NODES", "ACL|DRYRUN", "SCRIPT|KILL"},
}
"""Commands of a connection's begin, of redis-py for pub/sub, of arq for a worker, and the questions whether a restart
or a crash would lose anything: ACL DRYRUN tells what a user may do, and nothing of its password; CONFIG GET tells
`appendfsync`. Gateways, which strangers reach, may not read settings: one of them is the password of a primary."""

ARQ: Final = {
    "gateway": {"job:*", "result:*"},
    "worker": {"*"},
    "console": {"job:*", "result:*", "retry:*"},
}
"""After what arq's keys begin with, on a cluster or not."""

WRITES_ONLY: Final = {"gateway": {"shoal:{0ax}:dead"}}
"""Keys that a role writes and may not read: a gateway sets aside what a platform did not take, and never looks."""

READS_ONLY: Final = {"gateway": {"shoal:{0ax}:limit:*"}}
"""Keys that a role reads and may not write: a gateway tells people until when nobody asks their model, and never closes
one."""

AUDIT: Final = "shoal:{0ax}:audit"
AUDIT_GRANTS: Final = {"gateway": "+type +xadd", "worker": "+type +xadd", "console": "+type +xadd +xrevrange"}
"""All that a role may do to the audit record, by a selector of its own: none deletes, empties, renames or expires what
may accuse it. Only the console reads. (XADD can trim; the log of each process has a copy of its lines.)"""

ALL_BUT_AUDIT: Final = {"shoal:{0ax}:[^a]*", "shoal:{0ax}:a[^u]*"}  # patterns have no other way to leave a key out

CHANNELS: Final = ("shoal:{0ax}:live:*", "shoal:{0ax}:control")
_HEAD: Final = """\
# Who may say what to Redis: one user a role, and no more than the code of that role says. None may FLUSH, KEYS, DEBUG,
# CONFIG SET or anything else that changes the server; workers and the console may read its settings, by which they
# know what a crash costs. `render-users` makes the server's ACL file of this.
# Made of the code by `python -m tests.deploy.users_acl`.
#
# The user default is off, so nobody can log in as it, and has every right: Redis replays what scripts and transactions
# wrote (MULTI ... EXEC in the append-only file) with the rights of this user. A server without the fix of redis#14545
# or valkey#3984, such as Redis 7.0.15, drops without a word to us what it may not do: a restart forgets nearly
# everything.
user default off resetchannels ~* &* +@all
user health on nopass resetchannels -@all +ping +role
#
# Users that are there only if they have a password: `admin` is for maintenance (as-admin) and may do everything;
# `backup` may ask for a copy of all that the server knows. With Sentinels, `replica` is what servers are to each other,
# and `sentinel` what Sentinels are to servers.
user admin on {admin?} ~* &* +@all
user backup on {backup?} resetchannels -@all +ping +psync +replconf +sync
user replica on {replica?} resetchannels -@all +ping +psync +replconf +sync
user sentinel on {sentinel?} resetchannels &__sentinel__:hello -@all +client|kill +client|pause +client|setname \
  +client|unpause +config|rewrite +exec +info +multi +ping +publish +replicaof +role +script|kill +slaveof +subscribe
"""


def text(known: set[str]) -> str:
    """The template; `known` are the commands that there are, in capitals."""
    return _HEAD + "".join(_user(role, known) for role in PACKAGES)


def _user(role: str, known: set[str]) -> str:
    message = reach(PACKAGES[role])
    commands = (message.commands & known) - DONE_WITHOUT | BESIDE[role]
    # Whoever exports, restores and erases sessions has all their keys.
    keys = ALL_BUT_AUDIT if role == "console" else message.keys - {AUDIT}
    arq = {f"{begin}{kind}" for kind in ARQ[role] for begin in (ARQ_BEGIN, ARQ_ON_CLUSTER)}
    arq -= {f"{ARQ_ON_CLUSTER}*"}
    # Each process that is scraped checks the types of all keys of the fleet, and may do no more with those of others.
    unseen = {
        one
        for one in FLEET
        if one != AUDIT and not any(fnmatchcase(one, pattern.replace("^", "!")) for pattern in keys)
    }
    lines = [f"user {role} on {{{role}}} resetchannels {' '.join(f'&{one}' for one in CHANNELS)} -@all"]
    for words in (
        [*(_key(role, one) for one in sorted(keys | arq))],
        [f"+{one.lower()}" for one in sorted(commands)],
        [f"({_audit_key(role)}", f"{AUDIT_GRANTS[role]})"],
        *([["(" + " ".join(f"%W~{one}" for one in sorted(unseen)), "+type)"]] if unseen else []),
    ):
        lines += textwrap.wrap(" ".join(words), 116, break_long_words=False, break_on_hyphens=False)
    return " \\\n  ".join(lines) + "\n"


def _audit_key(role: str) -> str:
    return f"~{AUDIT}" if role == "console" else f"%W~{AUDIT}"


def _key(role: str, key: str) -> str:
    if key in READS_ONLY.get(role, ()):
        return f"%R~{key}"
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
