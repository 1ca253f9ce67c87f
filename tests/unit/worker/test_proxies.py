"""Which proxy a connection goes through, by what the environment says."""

from __future__ import annotations

from pathlib import Path

import pytest

from farhand_worker.address import parse
from farhand_worker.options import options
from farhand_worker.proxies import BadProxy, Proxy, proxy_for
from farhand_worker.settings import load, parser

SERVER = parse("https://flows.example.org:8420/base")
PLAIN = parse("http://flows.example.org", insecure=True)
P = {"https_proxy": "http://proxy.lan:8080"}


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy.lan:8080"}, Proxy("proxy.lan", 8080)),
        ({"HTTPS_PROXY": "proxy.lan"}, Proxy("proxy.lan", 3128)),
        ({"HTTP_PROXY": "http://proxy.lan:8080"}, None),
        ({"ALL_PROXY": "http://proxy.lan:8080"}, Proxy("proxy.lan", 8080)),
        ({**P, "HTTPS_PROXY": "http://other:1"}, Proxy("proxy.lan", 8080)),
        ({**P, "https_proxy": ""}, None),
        ({**P, "https_proxy": "http://me:p%40ss@proxy.lan:1"}, Proxy("proxy.lan", 1, "Basic bWU6cEBzcw==")),
        ({**P, "NO_PROXY": "*"}, None),
        ({**P, "NO_PROXY": "other.org, flows.example.org"}, None),
        ({**P, "no_proxy": "Example.org"}, None),
        ({**P, "no_proxy": ".example.org"}, None),
        ({**P, "no_proxy": "*.example.org"}, None),
        ({**P, "no_proxy": "flows.example.org:8420"}, None),
        ({**P, "no_proxy": "flows.example.org:9"}, Proxy("proxy.lan", 8080)),
        ({**P, "no_proxy": "ample.org,10.0.0.0/8,,"}, Proxy("proxy.lan", 8080)),
    ],
)
def test_the_environment_names_the_proxy_and_what_is_reached_without(
    environ: dict[str, str], proxy: Proxy | None
) -> None:
    """B114."""
    assert proxy_for(SERVER, environ) == proxy


def test_each_scheme_has_its_own_and_this_machine_none() -> None:
    both = {**P, "http_proxy": "http://plain.lan:1"}
    assert proxy_for(PLAIN, both) == Proxy("plain.lan", 1)
    for url in ("http://localhost:8420", "https://127.0.0.2", "http://[::1]:1"):
        assert proxy_for(parse(url), both) is None


@pytest.mark.parametrize("listed", ["10.1.0.0/16", "10.1.2.3", "10.1.2.3:443", "10.0.0.0/8"])
def test_addresses_and_networks_can_be_excepted(listed: str) -> None:
    assert proxy_for(parse("https://10.1.2.3"), {**P, "no_proxy": listed}) is None


@pytest.mark.parametrize("text", ["socks5://proxy.lan:1", "https://proxy.lan", "http://", "http://proxy:x"])
def test_a_proxy_of_another_kind_is_refused_with_the_name_of_the_variable(text: str) -> None:
    with pytest.raises(BadProxy, match=r"^HTTPS_PROXY"):
        proxy_for(SERVER, {"HTTPS_PROXY": text})


def test_what_lies_beside_this_machine_is_reached_without(tmp_path: Path) -> None:
    """A relay on the login node of a cluster, whose nodes reach the world outside by a proxy."""
    assert proxy_for(SERVER._replace(beside=True), P) is None
    words = ["--url", "https://login1:1", "--relay-file", str(tmp_path / "none"), "--token", "a.token"]
    chosen = options(load(vars(parser().parse_args(words)), {}, None))
    assert chosen.address() == parse("https://login1:1")._replace(beside=True)


def test_credentials_are_not_shown() -> None:
    proxy = proxy_for(SERVER, {"HTTPS_PROXY": "http://me:secret@proxy.lan:1"})
    assert proxy is not None
    assert proxy.text == "proxy.lan:1"
