"""What the parts of Feishu's fake server share: refusals and files."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json

from aiohttp import web
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7


def no(code: int, msg: str, *, status: int = 400, headers: dict[str, str] | None = None) -> web.Response:
    """A refusal, as Feishu words it."""
    error = {"log_id": "20240911085251BEA8869709BAD4373B10", "troubleshooter": "..."}
    return web.json_response({"code": code, "msg": msg, "error": error}, status=status, headers=headers)


class Files:
    """The files of Feishu, by their keys."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self._ids = itertools.count(1)

    async def upload(self, request: web.Request) -> web.Response:
        form, image = await request.post(), request.match_info["kind"] == "images"
        file = form.get("image" if image else "file")
        wanted = ("message",) if image else ("opus", "mp4", "pdf", "doc", "xls", "ppt", "stream")
        if file is None or form.get("image_type" if image else "file_type") not in wanted:
            return no(234001, "Invalid request param.")
        data = file.file.read() if isinstance(file, web.FileField) else file  # with a name or without
        data = data.encode() if isinstance(data, str) else bytes(data)
        if not data or len(data) > (10 if image else 30) * 1024 * 1024:
            return no(234010 if not data else 234006, "The file size is wrong.")
        if image and data.startswith(b"broken"):
            return no(234011, "Can't regonnize image format.")
        key = f"{'img' if image else str(form['file_type'])}_v3_{next(self._ids)}"
        self.data[key] = data
        return web.json_response({"code": 0, "msg": "success", "data": {"image_key" if image else "file_key": key}})

    def resource(self, request: web.Request) -> web.Response:
        """A file of a message."""
        key = request.match_info["key"]
        if key not in self.data:
            return no(234003, "File not in msg.")
        if (request.query.get("type") == "image") is not key.startswith("img"):
            return no(234001, "Invalid request param.")
        return web.Response(body=self.data[key], content_type="application/octet-stream")


def encrypt_body(encrypt_key: str, text: bytes, iv: bytes) -> bytes:
    """The body of a call with this text, as Feishu encrypts it."""
    padder = PKCS7(128).padder()
    key = hashlib.sha256(encrypt_key.encode()).digest()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    data = encryptor.update(padder.update(text) + padder.finalize()) + encryptor.finalize()
    return json.dumps({"encrypt": base64.b64encode(iv + data).decode()}).encode()
