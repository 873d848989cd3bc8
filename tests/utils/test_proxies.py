import ipaddress
import socket
from collections.abc import Iterator

import pytest

from agentic_video.utils import proxies
from agentic_video.utils.proxies import ask_directly, is_near, proxy_for, proxy_problem

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
OUTSIDE = "203.0.113.7"  # a documentation address: on no real network


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with one address, in a network of 256."""
    own = (ipaddress.ip_interface("192.0.2.10/24"), ipaddress.ip_interface("127.0.0.1/8"))
    monkeypatch.setattr(proxies, "own_interfaces", lambda: own)


def test_without_proxies_nothing_goes_through_one() -> None:
    assert proxy_for(f"http://{OUTSIDE}:8000/v1") is None
    environment = {"PATH": "/bin", "no_proxy": "a"}
    ask_directly(environment, ["node"])
    assert environment == {"PATH": "/bin", "no_proxy": "a"}


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_remote_addresses_go_through_the_proxy_that_is_named(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "http://me:secret@proxy:3128")
    proxy = proxy_for(f"http://{OUTSIDE}:8000/v1")
    assert proxy and proxy.variable == variable and proxy.host == OUTSIDE
    said = str(proxy)
    assert variable in said and "proxy:3128" in said and f"no_proxy={OUTSIDE}" in said and "secret" not in said


def test_a_proxy_is_of_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:1")
    assert proxy_for(f"http://{OUTSIDE}/v1") is None
    assert proxy_for(f"https://{OUTSIDE}/v1")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.8.9.10", "localhost", "LOCALHOST", "judge.localhost", "[::1]", "0.0.0.0", "192.0.2.77", "OWN"],
)
def test_this_machine_and_its_network_are_asked_directly(
    host: str, network: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    host = socket.gethostname() if host == "OWN" else host
    assert proxy_for(f"http://{host}:8000/v1") is None


@pytest.mark.parametrize("host", [OUTSIDE, "192.0.3.1", "api.example.com", "[2001:db8::1]"])
def test_others_are_not(host: str, network: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    monkeypatch.setattr(proxies, "_addresses", lambda name: [])  # a name that isn't known here
    assert proxy_for(f"http://{host}/v1")


def test_a_name_counts_as_its_addresses(network: None, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"node7": ["192.0.2.7"], "both": ["192.0.2.7", OUTSIDE], "far": [OUTSIDE]}
    monkeypatch.setattr(proxies, "_addresses", lambda name: [ipaddress.ip_address(address) for address in known[name]])
    assert [is_near(name) for name in known] == [True, False, False]


@pytest.mark.parametrize("listed", [OUTSIDE, "203.0.113.0/24", f"a, {OUTSIDE} ,b", "*", f"{OUTSIDE}:8000"])
def test_what_no_proxy_lists_is_asked_directly(listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    monkeypatch.setenv("no_proxy", listed)
    assert proxy_for(f"http://{OUTSIDE}:8000/v1") is None


@pytest.mark.parametrize("url", ["http://[", "nonsense", "http://", ""])
def test_what_is_no_address_has_no_proxy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    assert proxy_for(url) is None


@pytest.mark.parametrize(
    ("value", "bad"), [("http://p:1", False), ("p:1", False), ("ftp://p:1", True), ("socks4://p:1", True)]
)
def test_a_proxy_that_no_client_takes_is_said(value: str, bad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", value)
    proxy = proxy_for(f"http://{OUTSIDE}/v1")
    assert proxy and bool(problem := proxy_problem(proxy)) == bad and ("all_proxy" in problem) == bad


def test_this_machine_and_a_cluster_s_nodes_are_added_to_what_is_listed(network: None) -> None:
    environment = {"HTTP_PROXY": "http://proxy:1", "NO_PROXY": "example.com"}
    ask_directly(environment, ["10.9.8.7"])
    listed = environment["no_proxy"].split(",")
    assert listed[0] == "example.com" and {"localhost", "127.0.0.1", "::1", "192.0.2.10", "10.9.8.7"} <= {*listed}
    assert environment["NO_PROXY"] == environment["no_proxy"] and len(listed) == len({*listed})
    before = dict(environment)
    ask_directly(environment, ["10.9.8.7"])
    assert environment == before
