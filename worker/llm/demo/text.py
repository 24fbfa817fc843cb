"""The texts of the demo model."""

from __future__ import annotations

import re
from typing import Final

from worker.agent.tools.text import shorten

_SETUP: Final = """For a real model press *Use a real model* on the page, run `shoal init`, or write `shoal.toml`:

```toml
[model]
name = "anthropic/claude-sonnet-4-5"   # or openai/..., openrouter/..., ollama/...
api_key = "${ANTHROPIC_API_KEY}"
```

`SHOAL_MODEL__NAME` and `SHOAL_MODEL__API_KEY` do the same for one start."""

FILE: Final = "packing-list.md"
OLD_LINE: Final = "- a book"
NEW_LINE: Final = "- a long book"
FILE_TEXT: Final = f"# Packing list\n\n- a towel\n{OLD_LINE}\n- sun cream\n"
"""The file that the demo writes, and the line that it changes."""

_TRICKS: Final = """- **Tell me a long story**: watch it, stop it, or kill the worker that tells it
- **Remind me in one minute to stretch**: I write again by myself; `/cron` lists what is planned
- **Write a packing list**, then **Change the list**: a file of this chat, and a change that waits for your yes
- **Search your files for working days**: I look through the texts that come with me
- **What time is it in Tokyo?**, **Calculate 37 * 91**, **Roll two dice**: real tools
- **My name is Ada**, and later **What is my name?**: I remember within this chat
- **Write some code**: a code block and a table
- **Ask a subagent to calculate 37 * 91**: it works in the background; `/jobs` lists it"""

_CODE: Final = """Here is a small Python function that counts words:

```python
from collections import Counter


def most_common(text: str, n: int = 3) -> list[tuple[str, int]]:
    \"\"\"The n words that occur most often in a text.\"\"\"
    return Counter(text.lower().split()).most_common(n)


print(most_common("the fish and the net and the sea"))
```

It prints:

| word | count |
|------|------:|
| the  | 3 |
| and  | 2 |
| fish | 1 |

I am only the offline demo, so this is always the same example."""

_SCENES: Final = (
    "At first light the shoal turned as one, a thousand small fish and not one of them in charge.",
    "The smallest, who was called Minnow, asked who decided where to go. Nobody, said her neighbour, and everybody.",
    "They passed over the old wreck, where the eel kept a list of all the messages that bottles had brought him.",
    "He had answered each of them once, he said, and none of them twice, and he was very proud of that.",
    "A storm came down from the north, and half of the shoal was swept behind the reef.",
    "The others did not wait and did not panic. They took up the work where it lay, and the song went on.",
    "When the lost ones came back, they found their places kept, and nothing that they had begun was left undone.",
    "Minnow thought about this for a long time, which for a fish is almost a minute.",
    "That night the sea was full of small lights, and every light was somebody awake so that others could rest.",
    "In the morning there was a new current. They tried it together, a little at a time, ready to turn back.",
)

_STORY: Final = (
    "# The shoal\n\n"
    + "\n\n".join(
        f"**Part {part}.** "
        + " ".join(_SCENES[(part * 3 + scene) % len(_SCENES)] for scene in range(len(_SCENES) // 2))
        for part in range(1, 7)
    )
    + "\n\nAnd that is the end, as far as an offline demo can tell."
)

_GREETING: Final = f"""Hello! I am the demo model that is built into Shoal. I run offline and know only a few tricks:

{_TRICKS}"""

_WELCOME: Final = "You are welcome! Ask me for **help** to see what else this demo can do."

_HELP: Final = f"""I am the demo model that is built into Shoal: offline, small, and good for trying things out.

{_TRICKS}

{_SETUP}"""

ANSWERS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"\b(?:code|program|script|function|table)\b", re.IGNORECASE), _CODE),
    (re.compile(r"\b(?:story|essay|poem|long (?:answer|text|reply))\b", re.IGNORECASE), _STORY),
    (re.compile(r"^\W*(?:hello|hi|hey|good (?:morning|evening|day))\b", re.IGNORECASE), _GREETING),
    (re.compile(r"\b(?:thanks|thank you)\b", re.IGNORECASE), _WELCOME),
    (re.compile(r"\b(?:help|who are you|what are you|what can you)\b", re.IGNORECASE), _HELP),
)


def default_answer(text: str) -> str:
    """Return the answer to everything else."""
    quoted = shorten(" ".join(text.split()), 200)
    opening = f"You wrote: “{quoted}”. " if quoted else ""
    opening += "That is beyond me: I am only the offline demo model of Shoal. I can show you this:"
    return f"{opening}\n\n{_TRICKS}\n\n{_SETUP}"
