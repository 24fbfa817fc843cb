"""A fleet for every test here."""

from tests.helpers.fleet_fixtures import kept_client, kept_fleet, model, model_server, spawn

__all__ = ["kept_client", "kept_fleet", "model", "model_server", "spawn"]
