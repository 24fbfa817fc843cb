"""The job that gives a chat its title. `context["deps"]` has `titler`."""

from __future__ import annotations

from worker.jobs.memory import Context, keeps_crashing, with_retries
from worker.titles.titler import Titler


async def title(context: Context, session: str) -> None:
    """Give a chat a title in place of its first words. Raises TryLater, but not because of the
    model: the next answer of the chat asks for a title again."""
    titler: Titler = context["deps"].titler

    async def work(patient: bool) -> None:
        if keeps_crashing(context):
            await titler.keep_words(session)
        else:
            await titler.give_title(session)

    await with_retries(context, session, work)
