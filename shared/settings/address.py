"""The address of the Redis that a process uses."""

from __future__ import annotations

from shared.errors import SettingsError
from shared.settings.sections.redis import EMBEDDED, EMBEDDED_URL_FILE, whole_address
from shared.settings.sections.settings import Settings


def redis_url(settings: Settings) -> str:
    """Return the address of the Redis to use, with password and `ssl_ca_certs`; for `embedded`, the
    one that the running server has written to its file.

    Raises SettingsError when no embedded server has left its address, or when `redis.ca_file`
    cannot be read.
    """
    url = settings.redis.url.reveal()
    if url != EMBEDDED:
        return whole_address(settings.redis)
    file = settings.data.dir / EMBEDDED_URL_FILE
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise SettingsError(
            f"redis.url: no embedded Valkey is running (no {str(file)!r}): start `make up`, or set redis.url"
        ) from None
    except OSError as exc:
        raise SettingsError(f"redis.url: {str(file)!r} cannot be read: {exc.strerror}") from None
