"""Reads HTML on standard input and writes its title and its text (markdown) as JSON on standard
output.

A program of its own, `python -I page_child.py SECONDS MEMORY_BYTES URL`: a hostile page may make
the parser take any time and memory, and only a process can be stopped. Of this project it imports
nothing but the module that confines it, to start quickly.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

_TITLE_CHARS = 300


def main(seconds: int, memory_bytes: int, url: str) -> None:
    """Limit and confine this process, then parse."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Appended, not first: nothing of the project may shadow a module of the standard library.
    sys.path.append(str(Path(__file__).parents[2]))
    from worker.sandbox.parser_confinement import confine_parser

    confine_parser()  # before the first byte of the page, and before the parser is imported
    html = sys.stdin.buffer.read().decode("utf-8", "replace")

    import trafilatura

    tree = trafilatura.load_html(html)
    if tree is None:  # a fragment without tags around it
        html = f"<html><body><main><p>{html}</p></main></body></html>"
        tree = trafilatura.load_html(html)
    title = "" if tree is None else " ".join((tree.findtext(".//title") or "").split())[:_TITLE_CHARS]
    text = trafilatura.extract(
        html, url=url, output_format="markdown", include_links=True, include_tables=True, include_comments=False
    ) or trafilatura.html2txt(html, clean=True)
    sys.stdout.write(json.dumps({"title": title, "text": text}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
