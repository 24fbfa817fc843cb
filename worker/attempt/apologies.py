"""Replies to a message that gets no answer, by the reason of its dead letter."""

from __future__ import annotations

from typing import Final

APOLOGIES: Final = {
    "bad_record": "Sorry, this message could not be read, so I cannot answer it.",
    "poison": "Sorry, something in this message makes me fail every time, so I have put it aside.",
    "crashes": "Sorry, something in this message makes me fail every time, so I have put it aside.",
    "auth": "Sorry, I cannot answer: the key for the model is not accepted. Please tell whoever runs this service.",
    "bad_request": "Sorry, the model refused this request.",
    "context_length": "Sorry, this conversation has become too long for the model.",
    "model_away": "Sorry, the model could not be reached for a long time, so I stopped trying.",
    "timeout": "Sorry, this took too long, so I stopped working on it.",
    "error": "Sorry, something went wrong on my side and I could not answer this.",
}
