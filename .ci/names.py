"""The name server of the one-node Kubernetes of `.ci/cluster`: `python3 -I .ci/names.py <kubeconfig>`.

Knows Services without an address of their own, and the pods of a StatefulSet behind one, as CoreDNS does. Reads what
the cluster knows four times a second.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import struct
import sys
import urllib.request
from pathlib import Path
from typing import Any

NAME = re.compile(r"(?:(?P<host>[^.]+)\.)?(?P<service>[^.]+)\.(?P<namespace>[^.]+)\.svc(?:\.cluster\.local)?")
TTL_S = 5
Key = tuple[str, str, str]


def read(server: str, token: str) -> dict[Key, list[str]]:
    """Ask the cluster for the addresses of (namespace, service, pod or nothing)."""
    url = f"{server}/apis/discovery.k8s.io/v1/endpointslices"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310
    with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=3) as answer:  # noqa: S310, S323
        slices: list[dict[str, Any]] = json.load(answer)["items"]
    found: dict[Key, list[str]] = {}
    for one in slices:
        metadata = one["metadata"]
        service = metadata["labels"].get("kubernetes.io/service-name", "")
        for end in one.get("endpoints") or ():
            if end["conditions"].get("ready"):
                for host in {"", end.get("hostname", "")}:
                    found.setdefault((metadata["namespace"], service, host), []).extend(end["addresses"])
    return found


class Names(asyncio.DatagramProtocol):
    """Answers questions for addresses of IPv4."""

    def __init__(self) -> None:
        self.known: dict[Key, list[str]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode().lower())
            at += data[at] + 1
        (kind,) = struct.unpack(">H", data[at + 1 : at + 3])
        named = NAME.fullmatch(".".join(labels))
        key = (named["namespace"], named["service"], named["host"] or "") if named else ("", "", "")
        addresses = self.known.get(key, [])
        flags = 0x8580 if addresses else 0x8583
        rows = [socket.inet_aton(one) for one in addresses] if kind == 1 else []
        answers = b"".join(struct.pack(">HHHIH", 0xC00C, 1, 1, TTL_S, 4) + row for row in rows)
        head = data[:2] + struct.pack(">HHHHH", flags, 1, len(rows), 0, 0)
        self._transport.sendto(head + data[12 : at + 5] + answers, addr)


async def main(text: str) -> None:
    """Answer for ever, by the cluster of a kubeconfig."""
    [server], [token] = re.findall(r'server: "?([^",}]+)', text), re.findall(r'token: "?([^",}]+)', text)
    names = Names()
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: names, local_addr=("0.0.0.0", 53))  # noqa: S104
    while True:
        try:
            names.known = await asyncio.to_thread(read, server, token)
        except OSError as error:
            sys.stderr.write(f"{error}\n")
        await asyncio.sleep(0.25)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).read_text()))
