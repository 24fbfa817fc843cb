"""A bucket of any S3 product, for workspaces and media. Everything here blocks."""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import Iterator
from datetime import datetime
from typing import Any, BinaryIO, Final, Protocol
from urllib.parse import urlsplit

from shared.errors import SettingsError, ShoalError
from shared.network.outgoing import current
from shared.settings import Secret

ATTEMPTS: Final = 4
REQUEST_LIMIT: Final = "10s"
CONNECT_LIMIT: Final = "3s"
UNCONDITIONAL: Final = (
    "the store overwrites an object although it was asked not to (If-None-Match), and two workers could mix "
    "their files. Use a product with conditional writes: Amazon S3, MinIO, Ceph from 18 on, Cloudflare R2"
)


class StoreAway(ShoalError, ConnectionError):
    """The store did not answer, or not as it should, after several attempts."""

    code = "store_away"


class StoreSettings(Protocol):
    """The keys of a section of the settings that name a bucket."""

    @property
    def store(self) -> str: ...
    @property
    def store_endpoint(self) -> str: ...
    @property
    def store_region(self) -> str: ...
    @property
    def store_access_key(self) -> Secret | None: ...
    @property
    def store_secret_key(self) -> Secret | None: ...


# What the library says; 403 may also be a part of a port.
_REFUSED: Final = re.compile(r"(?<![:.\d])(?:401|403)\b|AccessDenied|credential")


class ObjectStore:
    """Objects below `s3://bucket/prefix` at `endpoint` (`""`: Amazon's). `keys` are an access key
    and its secret; without them, the standard AWS_ variables or the machine's role are used.
    `setting` is what errors name. Methods raise StoreAway."""

    def __init__(
        self,
        address: str,
        *,
        endpoint: str = "",
        region: str = "",
        keys: tuple[str, str] | None = None,
        setting: str = "workspace.store",
    ) -> None:
        try:
            import obstore
            from obstore.exceptions import AlreadyExistsError, BaseError, NotModifiedError, PreconditionError
            from obstore.store import S3Store
        except ImportError as exc:
            raise SettingsError(f"{setting}: its library is missing; install shoal[s3]") from exc
        self._setting: Final = setting
        parts = urlsplit(address)
        self._conflicts = AlreadyExistsError, PreconditionError
        self._unmodified = NotModifiedError
        self._faults = (BaseError, OSError)
        self._calls = obstore
        options: dict[str, Any] = {"timeout": REQUEST_LIMIT, "connect_timeout": CONNECT_LIMIT}
        options["allow_http"] = endpoint.startswith("http://")
        if proxy := current().proxy_for(endpoint or "https://s3.amazonaws.com"):
            options["proxy_url"] = proxy
        own: dict[str, Any] = {"endpoint": endpoint, "virtual_hosted_style_request": False} if endpoint else {}
        if region:  # otherwise AWS_REGION, which the library reads as it does the credentials
            own["region"] = region
        if keys is not None:
            own["access_key_id"], own["secret_access_key"] = keys
        self._store = S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            client_options=options,  # type: ignore[arg-type]
            retry_config={"max_retries": ATTEMPTS - 1},
            **own,
        )

    def check(self, *, conditional: bool = True) -> None:
        """Write and delete an object. Raises SettingsError when the store has no such bucket,
        refuses us, or (`conditional`) mixes up conditional writes; StoreAway while it cannot be
        reached."""
        key = f".check-{secrets.token_hex(8)}"
        try:
            mode: Any = "create" if conditional else "overwrite"
            self._calls.put(self._store, key, b"1", mode=mode)
        except FileNotFoundError:
            raise SettingsError(f"{self._setting}: there is no such bucket; create it, or mend the name") from None
        except self._faults as exc:
            if _REFUSED.search(str(exc)):
                raise SettingsError(
                    f"{self._setting}: the store refuses us; "
                    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and allow reads, writes, deletes and lists"
                ) from None
            raise StoreAway(f"the store cannot be reached ({type(exc).__name__})") from None
        try:
            others = (None, '"no-such-version"') if conditional else ()
            if any(self.put_if(key, b"2", etag) is not None for etag in others):
                raise SettingsError(f"{self._setting}: {UNCONDITIONAL}")
        finally:
            self.delete([key])

    def get(self, key: str) -> tuple[bytes, str] | None:
        """Return an object and its ETag; None if there is none."""
        try:
            found = self._calls.get(self._store, key)
            return bytes(found.bytes()), str(found.meta["e_tag"])
        except FileNotFoundError:
            return None
        except self._faults as exc:
            raise _away(exc) from None

    def download(self, key: str, file: BinaryIO) -> bool:
        """Write an object into a file, piece by piece; return False if there is none."""
        try:
            file.writelines(self._calls.get(self._store, key))
        except FileNotFoundError:
            return False
        except self._faults as exc:
            raise _away(exc) from None
        return True

    def changed(self, key: str, etag: str) -> bool:
        """Return whether an object is not the one with this ETag any more (`""`: none)."""
        try:
            self._calls.head(self._store, key) if not etag else self._calls.get(
                self._store, key, options={"if_none_match": etag}
            )
        except FileNotFoundError:
            return bool(etag)
        except self._unmodified:
            return False
        except self._faults as exc:
            raise _away(exc) from None
        return True

    def put(self, key: str, data: bytes) -> None:
        try:
            self._calls.put(self._store, key, data)
        except self._faults as exc:
            raise _away(exc) from None

    def put_if(self, key: str, data: bytes, etag: str | None) -> str | None:
        """Write an object if it is still the one with this ETag, or (None) does not exist. Return
        the new ETag; None if it is another. An attempt whose reply was lost may look like
        another."""
        mode: Any = {"e_tag": etag} if etag else "create"
        try:
            return str(self._calls.put(self._store, key, data, mode=mode)["e_tag"])
        except self._conflicts:
            return None
        except self._faults as exc:
            raise _away(exc) from None

    def delete(self, keys: list[str]) -> None:
        """Delete objects; those that do not exist are no error."""
        for key in keys:
            try:
                self._calls.delete(self._store, key)
            except FileNotFoundError:
                continue
            except self._faults as exc:
                raise _away(exc) from None

    def list(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        """Yield the keys below a prefix, each with the time of its last write."""
        try:
            for page in self._calls.list(self._store, prefix):
                for found in page:
                    yield found["path"], found["last_modified"]
        except self._faults as exc:
            raise _away(exc) from None


def _away(exc: Exception) -> StoreAway:
    return StoreAway(f"the store did not do it ({type(exc).__name__})")


def open_store(settings: StoreSettings, setting: str) -> ObjectStore:
    """Return the bucket that a section of the settings names by the key `setting`: one for all of a
    process, with one pool of connections. Raises SettingsError."""
    access = settings.store_access_key
    secret = settings.store_secret_key
    keys = (access.reveal(), secret.reveal()) if access is not None and secret is not None else None
    endpoint = settings.store_endpoint
    region = settings.store_region
    address = settings.store
    return _open(address, endpoint=endpoint, region=region, keys=keys, setting=setting)


@functools.lru_cache(maxsize=8)
def _open(address: str, **options: Any) -> ObjectStore:
    return ObjectStore(address, **options)
