"""Whether an address is one of this machine."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def leads_elsewhere(url: str | None) -> bool:
    """Return whether a URL may lead to another machine; one that is not known may."""
    host = None if url is None else urlsplit(url).hostname
    return host is None or not is_loopback(host)
