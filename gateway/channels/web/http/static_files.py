"""The page's own files, as browsers get them: compressed, and cached for good under the name of the
release."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import re
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

FOLDER: Final = Path(__file__).parents[1] / "static"
INDEX: Final = "index.html"
LATER: Final = "settings/"
"""The folder of files that a browser asks for only when the person opens what they show."""

RELEASE: Final = re.compile(r"[0-9a-f]{12}/")
"""What stands before the name of a file in the addresses that the index has."""

_TYPES: Final = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_COMMENT: Final = re.compile(r"^[ \t]*(?:/\*.*?\*/[ \t]*|//[^\n]*)$", re.DOTALL | re.MULTILINE)
_LEAST_BYTES: Final = 256  # less than that is not worth a header


class StaticFile(msgspec.Struct, frozen=True):
    """A file as it is sent; `packed` is the same with gzip, empty where that is no smaller."""

    body: bytes
    media_type: str
    etag: str
    packed: bytes = b""


class StaticFiles:
    """The files under `folder`, by relative path; they are small and stay in memory. The index
    names the others as `/static/<release>/<path>` and asks for all modules at once. `release` is a
    hash of all of them, so that browsers never ask for one again, and files of two releases never
    mix."""

    def __init__(self, folder: Path = FOLDER) -> None:
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".")]
        bodies = {path.relative_to(folder).as_posix(): _lean(path) for path in paths}
        digest = hashlib.sha256()
        for name, body in bodies.items():
            digest.update(name.encode() + b"\0" + hashlib.sha256(body).digest())
        self.release = digest.hexdigest()[:12]
        if INDEX in bodies:
            bodies[INDEX] = self._index(bodies)
        self._files = {name: _static_file(name, body) for name, body in bodies.items()}

    def get(self, name: str) -> StaticFile | None:
        """Return the file of this name."""
        return self._files.get(name)

    def address(self, name: str) -> str:
        """Return where browsers get a file of this release."""
        return f"/static/{self.release}/{name}"

    def response(self, name: str, request: Request) -> Response | None:
        """Answer a request for a file, or for `<release>/<file>`; None when there is none. A
        gateway of another release, as during an update, sends its own without leave to keep it."""
        named = RELEASE.match(name)
        page = self._files.get(name[named.end() :] if named else name)
        if page is None:
            return None
        ours = named is not None and named[0] == f"{self.release}/"
        headers = {"ETag": page.etag, "Cache-Control": _FOR_EVER if ours else "no-cache", "Vary": "Accept-Encoding"}
        known = request.headers.get("if-none-match", "")
        if {"*", page.etag} & {tag.strip().removeprefix("W/") for tag in known.split(",")}:
            return Response(status_code=304, headers=headers)
        body = page.body
        if page.packed and _takes_gzip(request.headers.get("accept-encoding", "")):
            body, headers["Content-Encoding"], headers["ETag"] = page.packed, "gzip", f"W/{page.etag}"
        return Response(body, media_type=page.media_type, headers=headers)

    def _index(self, bodies: dict[str, bytes]) -> bytes:
        """Return the index with the addresses of this release, and with every module named in it
        but those for LATER: otherwise a browser learns of each only from the one that imports
        it."""
        text = bodies[INDEX].decode()
        own = set(re.findall(r'"/static/([^"]+)"', text))
        modules = [name for name in bodies if name.endswith(".js") and not name.startswith(LATER)]
        modules = [name for name in modules if name not in own]
        links = "".join(f'  <link rel="modulepreload" href="/static/{name}">\n' for name in modules)
        text = text.replace("</head>", f"{links}</head>", 1)
        return text.replace('"/static/', f'"/static/{self.release}/').encode()


def _lean(path: Path) -> bytes:
    """Read a file; a script without its indentation, and without comments that have lines of their
    own: a fifth of what is sent. Lines keep their numbers. It is no parser: no text of several
    lines may look like a comment."""
    body = path.read_bytes()
    if path.suffix != ".js":
        return body
    text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), body.decode())
    return re.sub(r"^[ \t]+", "", text, flags=re.MULTILINE).encode()


def _static_file(name: str, body: bytes) -> StaticFile:
    suffix = Path(name).suffix
    kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    packed = b""
    if len(body) >= _LEAST_BYTES and (kind.startswith("text/") or kind == "image/svg+xml"):
        packed = gzip.compress(body, mtime=0)
    return StaticFile(body, kind, etag, packed)


def _takes_gzip(accepts: str) -> bool:
    """Tell whether `Accept-Encoding` has gzip with a quality above 0."""
    for part in accepts.lower().split(","):
        coding, _, quality = part.partition(";")
        if coding.strip() in ("gzip", "*"):
            return quality.replace(" ", "").removeprefix("q=") not in ("0", "0.0", "0.00", "0.000")
    return False
