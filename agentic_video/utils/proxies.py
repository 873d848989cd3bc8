"""HTTP proxies of the environment: used for remote addresses, not for this machine's and its network's.

Many sites set ``http_proxy`` without ``no_proxy``, though a proxy seldom reaches a cluster's own network.
"""

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from agentic_video.utils.host import within

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

LOOPBACK = ("localhost", "127.0.0.1", "::1", "0.0.0.0")
EXCEPTIONS = ("no_proxy", "NO_PROXY")
"""Variables with the hosts that are asked without a proxy. Programs read one or the other."""
SCHEMES = ("http", "https", "socks5", "socks5h")
"""Schemes of proxies that HTTP clients take."""
RESOLVE_SECONDS = 2.0
"""Seconds to wait for a host's addresses; behind a proxy, names outside are often unknown here."""


@dataclass(frozen=True)
class Proxy:
    """A proxy that requests go through.

    Attributes:
        variable: The environment variable that names it.
        url: The variable's value.
        host: The host that is asked.
    """

    variable: str
    url: str
    host: str

    def __str__(self) -> str:
        """The proxy without its password, and the remedy."""
        shown = f"...@{self.url.rpartition('@')[2]}" if "@" in self.url else self.url
        return f"asked through the proxy {shown} of {self.variable}; set no_proxy={self.host} to ask without it"


def proxy_for(url: str) -> Proxy | None:
    """Proxy of requests to an address with a scheme, e.g. ``http://host:8000/v1``; None for none."""
    named = getproxies_environment()
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:  # no address: whoever asks there finds out
        return None
    scheme = next((name for name in (parts.scheme, "all") if named.get(name)), "")
    if not scheme or not host or proxy_bypass_environment(parts.netloc.rpartition("@")[2], named) or is_near(host):
        return None
    if "no" in named and _excepted(host, named["no"]):
        return None
    return Proxy(_variable(scheme), named[scheme], host)


def proxy_problem(proxy: Proxy) -> str:
    """Problem of an unusable proxy, and its remedy; empty for a usable one."""
    scheme = proxy.url.partition("://")[0].lower() if "://" in proxy.url else "http"
    if scheme not in SCHEMES:
        return f"{proxy.variable}: no proxy's address: it must begin with http://, https:// or socks5://; {proxy}"
    if scheme.startswith("socks"):
        try:
            import socksio  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
        except ImportError:
            return f"{proxy.variable}: a SOCKS proxy needs the package socksio: pip install socksio; {proxy}"
    return ""


def is_near(host: str) -> bool:
    """Return True for a name or an address of this machine, or of a network that it is on."""
    host = host.lower().rstrip(".")
    if host in own_names() or host.endswith(".localhost"):
        return True
    addresses = [found] if (found := _address(host)) else _addresses(host)
    return bool(addresses) and all(map(_is_near, addresses))


def _is_near(address: Address) -> bool:
    return address.is_loopback or address.is_unspecified or any(address in own.network for own in own_interfaces())


@cache
def own_names() -> frozenset[str]:
    """The names of this machine."""
    return frozenset({*LOOPBACK, socket.gethostname().lower()} - {""})


@cache
def own_interfaces() -> tuple[Interface, ...]:
    """The addresses of this machine, each with the network that it is on."""
    import psutil

    found: list[Interface] = []
    for entry in (entry for entries in psutil.net_if_addrs().values() for entry in entries):
        address = _address(entry.address) if entry.family in (socket.AF_INET, socket.AF_INET6) else None
        mask = _address(entry.netmask or "")
        if address:
            length = bin(int(mask)).count("1") if mask else address.max_prefixlen
            found.append(ipaddress.ip_interface(f"{address}/{length}"))
    return tuple(found)


def ask_directly(environment: MutableMapping[str, str], hosts: Iterable[str] = ()) -> None:
    """Except this machine, and other hosts, from the proxies of an environment; one without proxies stays as it is."""
    named = {name: value for name, value in environment.items() if name.lower().endswith("_proxy")}
    if not any(value for name, value in named.items() if name not in EXCEPTIONS):
        return
    # lower case goes first, as in curl, Python and requests
    listed = next((environment[name] for name in EXCEPTIONS if environment.get(name)), "").split(",")
    own = [*LOOPBACK, *sorted(own_names()), *(str(interface.ip) for interface in own_interfaces())]
    value = ",".join(dict.fromkeys(host.strip() for host in (*listed, *own, *hosts) if host.strip()))
    environment.update(dict.fromkeys(EXCEPTIONS, value))


def _address(text: str) -> Address | None:
    """An address of a host; None for a name."""
    try:
        return ipaddress.ip_address(text.partition("%")[0].strip("[]"))
    except ValueError:
        return None


@cache
def _addresses(host: str) -> list[Address]:
    """The addresses of a name; none where they aren't known in time."""

    def ask() -> list[Address]:
        with contextlib.suppress(OSError, UnicodeError):
            entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return [address for entry in entries if (address := _address(str(entry[4][0])))]
        return []

    return within(RESOLVE_SECONDS, ask) or []


def _excepted(host: str, listed: str) -> bool:
    """Return True if the exceptions hold an address's network; the standard library reads names only."""
    address = _address(host)
    if address is None:
        return False
    for text in listed.split(","):
        try:
            if "/" in text and address in ipaddress.ip_network(text.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False


def _variable(scheme: str) -> str:
    """The environment variable that names the proxy of a scheme."""
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper())
    return next((name for name in names if os.environ.get(name)), names[0])
