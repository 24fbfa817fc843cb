"""A fleet for every test here."""

from tests.helpers.fleet_fixtures import client, model, model_server, spawn

__all__ = ["client", "model", "model_server", "spawn"]
