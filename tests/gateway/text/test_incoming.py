from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.text.incoming import html_to_text, slack_to_text, strip_quoted


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        ("hi <@U1> and <@U2|bob>", "hi @U1 and @bob"),
        ("<#C1|general> <#C2>", "#general #C2"),
        ("<!here> <!channel|@channel> <!subteam^S1|@team> <!date^1^{date}|soon>", "@here @channel @team soon"),
        ("<http://a.b/?x=1&amp;y=2|label>", "label (http://a.b/?x=1&y=2)"),
        ("<http://a.b>", "http://a.b"),
        ("<http://a.b|http://a.b>", "http://a.b"),
        ("<mailto:a@b.c|a@b.c> <tel:+491|+491>", "a@b.c +491"),
        ("1 &lt; 2 &amp;&amp; 3 &gt; 2", "1 < 2 && 3 > 2"),
        ("&amp;lt; &copy;", "&lt; &copy;"),
        ("a < b and <unclosed", "a < b and <unclosed"),
        ("", ""),
    ],
)
def test_slack_markup_reads_as_what_was_written(wire: str, text: str) -> None:
    """Escapes are undone once, references are told by their names."""
    assert slack_to_text(wire) == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<p>Hi&nbsp;there,<br>you</p><p>bye</p>", "Hi there,\nyou\n\nbye"),
        ("<div>a</div><div>b</div>", "a\nb"),
        ("<div>a</div><div><br></div><div>b</div>", "a\n\nb"),
        ("<div>a<br></div><div>b</div>", "a\nb"),
        ("<ul><li>a<li>b<ol start=3><li>c</ol></ul>d", "- a\n- b\n  3. c\n\nd"),
        ('<a href="http://x.y/z">label</a> <a href="http://x.y">http://x.y</a>', "label (http://x.y/z) http://x.y"),
        (
            '<a href="mailto:a@b.c">a@b.c</a> <a href="http://x.y"><img src="i" alt="logo"></a>',
            "a@b.c logo (http://x.y)",
        ),
        ("mine<blockquote>old<blockquote>older</blockquote></blockquote>", "mine\n\n> old\n>\n> > older"),
        ("<table><tr><td>a<td>b<tr><td>c<td>d</table>", "a | b\nc | d"),
        ("<pre>if x:\n    y\n</pre>z", "if x:\n    y\n\nz"),
        ("<title>t</title><style>s{}</style><script>alert(1)</script><!-- c --><b>kept</b>", "kept"),
        ("1 &lt; 2 &amp;amp;", "1 < 2 &amp;"),
        ("no html at all, 1 < 2", "no html at all, 1 < 2"),
        ("<p>unclosed <b>bold", "unclosed bold"),
        ("", ""),
    ],
)
def test_an_html_mail_reads_as_text(source: str, text: str) -> None:
    """Paragraphs, lists, tables, quotes and addresses survive; what is not text goes."""
    assert html_to_text(source) == text


@pytest.mark.parametrize("deep", ["<div>", "<blockquote>", "<ul><li>", "<b>", "<table><tr><td>", "<p>", "<span><div>"])
def test_a_mail_nested_thousands_deep_is_read_too(deep: str) -> None:
    """Whoever sends it holds nobody up, and loses no word."""
    assert "words" in html_to_text(deep * 20_000 + "words")


_TAGS = st.sampled_from(
    ["<", ">", "</", "<p>", "<a href='", "<!--", "<![CDATA[", "<![x", "<?", "&", "&#x", ";", '"', "=", "</blockquote>",
     "</ul>", "<li>", "</a>", "<ol start=x>", "<ol start=99999999999999>", "<pre>", "</pre>", "\v", "\t"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(_TAGS, st.text(max_size=5)), max_size=30).map("".join))
def test_any_text_is_read_as_html(source: str) -> None:
    """Mail is what strangers send."""
    assert isinstance(html_to_text(source), str)


_MAIL = "Yes, do that.\n\nOn Tue, 3 Nov 2026 at 10:00, Bob <bob@x.example> wrote:\n> old\n>\n>> older\n"


@pytest.mark.parametrize(
    "mail",
    [
        _MAIL,
        _MAIL.replace("\n", "\r\n"),
        _MAIL.replace(", Bob <bob", ",\nBob\n<bob"),
        _MAIL.replace("wrote:\n", "wrote:\n\n"),
        _MAIL.replace("On Tue, 3 Nov 2026 at 10:00, Bob", "Bob").replace("wrote", "wrote on 3 Nov"),
        "Yes, do that.\n\nAm 3.11.2026 um 10:00 schrieb Bob:\n\n> alt",
        "Yes, do that.\n\nLe 3 nov. 2026, Bob a écrit :\n> vieux",
        "Yes, do that.\n\n2026年11月3日 Bob <bob@x.example> 写道：\n> 旧",
    ],
)
def test_the_mail_that_is_answered_is_left_out(mail: str) -> None:
    """It is in the conversation already."""
    assert strip_quoted(mail) == "Yes, do that."


@pytest.mark.parametrize(
    "mail",
    [
        "What about this?\n> a quote of something",
        "As Bob wrote:\n> wise words",
        _MAIL + "\nAnd below it I say more.",
        _MAIL.partition("\n\n")[2],
        "> only\n> a quote",
        "Inline:\n\nOn Tue, 3 Nov 2026, Bob wrote:\n> one?\n\nYes.\n\n> two?\n\nNo.",
        "On 3 Nov 2026 Bob wrote:",
        "-----Original Message-----\nFrom: Bob\nSent: today\n\nmy answer is below\n",
        "",
        "plain",
    ],
)
def test_what_may_be_the_persons_own_words_stays(mail: str) -> None:
    """A word too many costs little; a word that is missing is lost."""
    assert strip_quoted(mail) == mail


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["> q", "", "mine", "On 3 Nov 2026 Bob wrote:", "wrote 1:", "  > q", "a@b.c"]), max_size=8)
)
def test_no_line_of_ones_own_is_cut_off(lines: list[str]) -> None:
    """Whatever goes is quotes at the end, and the line above them."""
    kept = strip_quoted("\n".join(lines)).split("\n")
    assert kept == lines[: len(kept)] or "\n".join(kept) == "\n".join(lines)
    gone = [line for line in lines[len(kept) :] if line and not line.lstrip().startswith(">")]
    assert gone in ([], ["On 3 Nov 2026 Bob wrote:"])
