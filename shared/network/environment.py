"""The standard variables of proxies and certificates, in the environment of this process."""

from __future__ import annotations

import os
from typing import Final

from shared.settings.sections.network import NO_PROXY_VARIABLE, PROXY_VARIABLES, NetworkSettings

_OTHERS: Final = ("FTP_PROXY", "WS_PROXY", "WSS_PROXY")
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def replace_variables(settings: NetworkSettings) -> None:
    """Set the variables to the proxy of the settings, and remove them where there is none.
    Libraries of model providers and of installed packages read them, each in its own way; here they
    find what the operator decided. Variables of certificates stay with `from_environment` alone."""
    proxy = settings.proxy.reveal() if settings.proxy is not None else ""
    exceptions = ",".join(settings.no_proxy) if proxy else ""
    values = {**dict.fromkeys((*PROXY_VARIABLES, *_OTHERS), ""), NO_PROXY_VARIABLE: exceptions}
    values |= dict.fromkeys(PROXY_VARIABLES, proxy)
    for name, value in values.items():
        for spelling in (name, name.lower()):
            if value:
                os.environ[spelling] = value
            else:
                os.environ.pop(spelling, None)
    if not settings.from_environment:
        for name in _CERTIFICATES:
            os.environ.pop(name, None)
