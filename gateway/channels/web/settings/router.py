"""The routes below `/settings`, which the page at `/settings` asks."""

from __future__ import annotations

from collections.abc import Callable

from starlette.routing import BaseRoute, Route

from gateway.channels.web.http.first_run import FirstRun
from gateway.channels.web.http.own_chat import Visitors
from gateway.channels.web.settings.answers import answering
from gateway.channels.web.settings.installation import InstallationPart
from gateway.channels.web.settings.model_list import ModelsPart
from gateway.channels.web.settings.usage import UsagePart
from gateway.channels.web.settings.work import WorkPart
from gateway.channels.web.settings.you import YouPart
from gateway.channels.web.settings.zones import ChosenZones
from shared.settings import Settings
from shared.store.client.redis_client import RedisClient


def settings_routes(
    client: RedisClient,
    settings: Settings,
    make_visitors: Callable[..., Visitors],
    zones: ChosenZones,
    first_run: FirstRun | None,
) -> list[BaseRoute]:
    """Return the routes. Looking is cheap; a test of a model costs money, and tries of keys are
    few."""
    looks = make_visitors(what="looks", burst=30, per_s=2)
    tests = make_visitors(what="tests", burst=6, per_s=1 / 10)
    you = YouPart(zones, settings)
    work = WorkPart(client)
    usage = UsagePart(client, settings)
    models = ModelsPart(client, settings, first_run)
    installation = InstallationPart(client, settings)
    test = answering(models.test_model, tests, owner=True)
    key = answering(models.replace_key, tests, owner=True, own_page=True)
    whole = answering(installation.show_installation, looks, owner=True)
    return [
        Route("/settings/you", answering(you.show_person, looks), methods=["GET"]),
        Route("/settings/you", answering(you.choose_zone, looks), methods=["PUT"]),
        Route("/settings/work", answering(work.list_work, looks), methods=["GET"]),
        Route("/settings/usage", answering(usage.show_usage, looks), methods=["GET"]),
        Route("/settings/models", answering(models.list_models, looks), methods=["GET"]),
        Route("/settings/models/test", test, methods=["POST"]),
        Route("/settings/models/key", key, methods=["PUT"]),
        Route("/settings/installation", whole, methods=["GET"]),
    ]
