from __future__ import annotations

import pytest

from gateway.text.characters import is_blank
from tests.gateway.text.readers import READERS
from tests.gateway.text.shown import assert_same_plain_text, renderer

DOCUMENTS = [
    "# Title *it\n\n**Bold _both_ `code` ~~old~~** [label](https://host.example/a_b?c=d) end.",
    "See:\n\n- a **b**\n  1. c\n\n```python\nx = '<&>'\n```\n> q\n> > r\n\n|h|i|\n|-|-:|\n|`1`|[2](http://x.y)|\n\n---\n",
    "<b>&lt; ![pic](https://i.example/p.png) <https://a.example> \\*no\\* @everyone <@12345678901234567> ***x***",
    "👩\u200d👩\u200d👧 שלום **漢字。** 🇩🇪\n~~~js\nlet a = `b` // ```\n~~~\ndone``",
]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_shown_while_a_reply_is_streamed_is_well_formed(name: str, document: str) -> None:
    """A fence, a link, a table that is not finished yet: the platform takes the message all the same."""
    for end in range(1, len(document) + 1):
        prefix = document[:end]
        pieces = renderer(name)(prefix)
        assert len(pieces) == 1
        assert not is_blank(READERS[name](pieces[0].text))
        assert_same_plain_text(pieces, prefix, name)
