"""Images by digest: `python -I .ci/images.py check [folder]` and `... pin [folder]`.

A tag can be moved to other content, a digest cannot. `check` lists every image that a release names by its tag alone,
and fails if there is one. `pin` asks the registry, by `docker buildx imagetools inspect`, and writes the digest behind
each tag. Our own image is `SHOAL_IMAGE` in Compose; in an overlay it is pinned once it is pushed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FILES = ("deploy/Dockerfile", "deploy/compose.yaml", "k8s/overlays/production/kustomization.yaml")
NAMED = re.compile(r"^(?P<before>FROM |\s+image: )(?P<image>[a-z][^\s@]*:[^\s@]+)(?P<after>\s.*)?$", re.MULTILINE)
SET = re.compile(r"^(?P<pad> +)newName: (?P<name>\S+)\n +newTag: (?P<tag>\S+)\n(?! +digest:)", re.MULTILINE)


def digest_of(image: str) -> str:
    """Ask the registry for the digest of an image."""
    asked = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
    digest = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise SystemExit(f"{image}: {digest!r} is no digest")
    return digest


def pinned(text: str, find_digest: Callable[[str], str]) -> str:
    """Return a file's text with a digest behind each tag that has none."""
    text = NAMED.sub(lambda at: f"{at['before']}{at['image']}@{find_digest(at['image'])}{at['after'] or ''}", text)
    return SET.sub(lambda at: f"{at[0]}{at['pad']}digest: {find_digest(at['name'] + ':' + at['tag'])}\n", text)


def main(what: str, folder: Path) -> int:
    """Check or pin the files below a folder."""
    unpinned: list[str] = []

    def note(image: str) -> str:
        unpinned.append(f"{path}: {image} has no digest; `make pin-images` writes it\n")
        return ""

    for path in (folder / name for name in FILES):
        text = path.read_text(encoding="utf-8")
        if what == "pin":
            path.write_text(pinned(text, digest_of), encoding="utf-8")
        else:
            pinned(text, note)
    sys.stderr.write("".join(unpinned))
    return 1 if unpinned else 0


if __name__ == "__main__":
    if sys.argv[1:2] not in (["check"], ["pin"]):
        raise SystemExit(__doc__)
    sys.exit(main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else ".")))
