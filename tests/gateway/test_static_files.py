"""The page's own files: compressed, kept for good under the name of a release, and never of two releases."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from gateway.channels.web.http.static_files import FOLDER, INDEX, LATER, StaticFiles

SCRIPT = b"import './b.js'\n" * 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ui").mkdir()
    (tmp_path / "app.js").write_bytes(SCRIPT)
    (tmp_path / "ui" / "b.js").write_bytes(b"short()")
    (tmp_path / INDEX).write_bytes(b'<head><script type="module" src="/static/app.js"></script></head>')
    return tmp_path


def ask(files: StaticFiles, name: str, **headers: str) -> Response:
    raw = [(key.replace("_", "-").encode(), value.encode()) for key, value in headers.items()]
    answer = files.response(name, Request({"type": "http", "headers": raw}))
    assert answer is not None
    return answer


def test_the_index_names_this_release_and_every_module(folder: Path) -> None:
    """A browser then asks for all of them at once."""
    files = StaticFiles(folder)
    page = bytes(ask(files, INDEX).body).decode()
    assert f'src="/static/{files.release}/app.js"' in page
    assert f'<link rel="modulepreload" href="/static/{files.release}/ui/b.js">' in page
    assert page.count("app.js") == 1, "what it has already is not named again"


def test_a_file_of_this_release_is_kept_for_good_and_the_index_never(folder: Path) -> None:
    """So a reload asks for the index alone."""
    files = StaticFiles(folder)
    kept = ask(files, f"{files.release}/app.js").headers["cache-control"]
    assert "immutable" in kept
    assert ask(files, INDEX).headers["cache-control"] == "no-cache"
    assert ask(files, "app.js").headers["cache-control"] == "no-cache"


def test_a_gateway_of_another_release_sends_its_own_file_not_to_be_kept(folder: Path) -> None:
    """During an update the page may be of one and its script of the other; a reload mends that."""
    before = StaticFiles(folder).release
    (folder / "app.js").write_bytes(b"anew()")
    files = StaticFiles(folder)
    assert files.release != before
    answer = ask(files, f"{before}/app.js")
    assert (bytes(answer.body), answer.headers["cache-control"]) == (b"anew()", "no-cache")


@pytest.mark.parametrize(
    ("accepts", "packed"),
    [("gzip, deflate, br", True), ("gzip;q=0.5", True), ("*", True), ("", False), ("br", False), ("gzip;q=0", False)],
)
def test_who_takes_gzip_gets_it(folder: Path, accepts: str, packed: bool) -> None:
    """A cache between must not give it to somebody else."""
    answer = ask(StaticFiles(folder), "app.js", accept_encoding=accepts)
    body = bytes(answer.body)
    assert (answer.headers.get("content-encoding") == "gzip") is packed
    assert (gzip.decompress(body) if packed else body) == SCRIPT
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.headers["content-length"] == str(len(body))


def test_a_short_file_is_sent_as_it_is(folder: Path) -> None:
    """Compressed it would be longer."""
    assert "content-encoding" not in ask(StaticFiles(folder), "ui/b.js", accept_encoding="gzip").headers


@pytest.mark.parametrize("accepts", ["gzip", ""])
def test_a_known_file_is_not_sent_again(folder: Path, accepts: str) -> None:
    """By the tag of either form."""
    files = StaticFiles(folder)
    tag = ask(files, "app.js", accept_encoding=accepts).headers["etag"]
    assert ask(files, "app.js", accept_encoding=accepts, if_none_match=tag).status_code == 304


SOURCE = b"""/** Says
 * what it does. */
import { a } from "./a.js"; // why

  // A line of its own.
  const address = "http://example.com/*"; /* kept */
    go(`// text`); /** kept */
"""


def test_a_script_goes_without_comments_of_their_own_lines(folder: Path) -> None:
    """What stands beside code stays, and every line has its number."""
    (folder / "app.js").write_bytes(SOURCE)
    assert bytes(ask(StaticFiles(folder), "app.js").body).split(b"\n") == [
        b"",
        b"",
        b'import { a } from "./a.js"; // why',
        b"",
        b"",
        b'const address = "http://example.com/*"; /* kept */',
        b"go(`// text`); /** kept */",
        b"",
    ]


def test_no_text_of_a_script_has_several_lines() -> None:
    """Its indentation would be lost, and it might look like a comment."""
    for path in FOLDER.rglob("*.js"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            # A backtick in a regular expression, a string or a comment begins no text.
            text = re.sub(r"/\[[^\]]*\]|\(`.*`\||\"`\"|/\*.*\*/", "", line)
            assert text.count("`") % 2 == 0, f"{path.name}:{number}"


def test_the_whole_page_is_small() -> None:
    """At most 60 kB over the network, and 12 kB more for those who open the settings."""
    files, names = StaticFiles(), [path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.*")]
    sizes = {name: len(bytes(ask(files, name, accept_encoding="gzip").body)) for name in names}
    later = sum(size for name, size in sizes.items() if name.startswith(LATER))
    assert sum(sizes.values()) - later <= 60_000
    assert later <= 12_000


def test_the_index_names_nothing_that_is_fetched_later() -> None:
    """No module that the page begins with imports it either: it would come with the page."""
    index = bytes(ask(StaticFiles(), INDEX).body).decode()
    assert "ui/dom.js" in index
    assert LATER not in re.sub(r'href="#[^"]*"', "", index)
    early = [path for path in FOLDER.rglob("*.js") if not path.relative_to(FOLDER).as_posix().startswith(LATER)]
    assert early
    for path in early:
        assert not re.search(rf"^import .*/{LATER}", path.read_text(), re.MULTILINE), path.name
