"""Starts a program in a network namespace of its own, in which only a loopback interface exists.

Run as a script, with the handle of a Unix socket, a port and the program. Through the socket it
hands out a listener on that port of the new loopback: the proxy of the command accepts there from
outside. It knows the standard library only, and is replaced by the program when it is done."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Final

BACKLOG: Final = 32
_NEW_USER = 0x10000000
_NEW_NETWORK = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
# Bytes that a socket may hold while its peer does not read. The kernel's own limits are megabytes.
_BUFFER_BYTES: Final = 64 * 1024
_BUFFERS: Final = (("tcp_wmem", f"4096 16384 {_BUFFER_BYTES}"), ("tcp_rmem", f"4096 {_BUFFER_BYTES} {_BUFFER_BYTES}"))


def main(words: Sequence[str]) -> None:
    """Make the namespace, hand out the listener, and become the program."""
    handle, port, *program = words
    enter_namespace()
    with socket.socket() as listener, socket.socket(fileno=int(handle)) as channel:
        fcntl.ioctl(listener, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES // 2)  # the kernel doubles it
        listener.bind(("127.0.0.1", int(port)))
        listener.listen(BACKLOG)
        # It fails if the worker is dead by now; nothing must be started then.
        socket.send_fds(channel, [b"."], [listener.fileno()])
    os.execvp(program[0], program)  # noqa: S606 (there is no shell in between, and must not be)


def enter_namespace() -> None:
    """Enter a new network namespace. Without the privilege for it, enter a user namespace first: in
    there this user has it, and loses it again by becoming the program. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid = os.getuid()
    gid = os.getgid()
    if libc.unshare(_NEW_NETWORK) < 0:
        if libc.unshare(_NEW_USER | _NEW_NETWORK) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        for name, text in (("setgroups", "deny"), ("gid_map", f"{gid} {gid} 1"), ("uid_map", f"{uid} {uid} 1")):
            _write(f"/proc/self/{name}", text)
    for name, text in _BUFFERS:
        try:
            _write(f"/proc/sys/net/ipv4/{name}", text)
        except OSError:  # read-only in most containers; the memory of sockets is then limited less tightly
            return


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as exc:
        sys.exit(f"a network of its own cannot be made for the command: {exc.strerror}")
