"""Where a server listens, and whom it answers."""

from __future__ import annotations

import pytest

from fastroai.errors import ConfigurationError
from fastroai.workflows.server.serving import HttpPlace


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:8321", "127.0.0.1", 8321), ("localhost:0", "localhost", 0), ("[::1]:80", "::1", 80)],
)
def test_a_place_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    place = HttpPlace.of(text)
    assert (place.host, place.port) == (host, port)


@pytest.mark.parametrize(
    "text", ["8321", "127.0.0.1", ":8321", "localhost:port", "127.0.0.1:65536", "a:-1", ""]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"HOST:PORT, as in 127\.0\.0\.1:8321"):
        HttpPlace.of(text)


@pytest.mark.parametrize("text", ["0.0.0.0:8321", "[::]:8321", "10.0.0.7:8321"])
def test_a_place_that_others_reach_needs_the_names_that_it_serves(text: str) -> None:
    with pytest.raises(ConfigurationError, match="no authentication"):
        HttpPlace.of(text)
    security = HttpPlace.of(text, ["flows.example"]).security()
    assert security.enable_dns_rebinding_protection
    assert security.allowed_hosts == ["flows.example", "flows.example:*"]
    assert "https://flows.example" in security.allowed_origins
    assert not any("127.0.0.1" in name for name in security.allowed_hosts)


def test_a_loopback_place_serves_the_names_of_this_machine_and_those_given() -> None:
    security = HttpPlace.of("127.0.0.1:8321", ["proxy.example"]).security()
    assert {"proxy.example", "127.0.0.1:*", "localhost:*", "[::1]:*"} <= set(security.allowed_hosts)
