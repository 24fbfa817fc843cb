"""A fleet for every test here."""

from tests.helpers.fleet_fixtures import model, model_server, spawn

__all__ = ["model", "model_server", "spawn"]
