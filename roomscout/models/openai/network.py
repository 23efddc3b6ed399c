"""How a URL is reached: its proxy and the certificates that the environment names."""

import ipaddress
import logging
import os
import re
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.request import getproxies

import httpx2

from roomscout.base.extras import is_installed, needs
from roomscout.base.wording import named
from roomscout.models import ModelError

log = logging.getLogger(__name__)

PROBE_S = 5.0
HASHED = re.compile(r"[0-9a-f]{8}\.\d+")
"""The names that `openssl rehash` gives to the certificates in a folder."""


@dataclass(frozen=True)
class Route:
    """The certificates that a host is checked with; its proxy, and the environment variable that names the proxy."""

    host: str
    certificates: ssl.SSLContext
    proxy: httpx2.Proxy | None = None
    variable: str = ""


def route_to(url: str) -> Route:
    """The route to a URL; raises ModelError for a URL or an environment variable that cannot be used.

    A proxy cannot reach this machine's loopback, so the environment's proxies do not apply there.
    """
    try:
        target = httpx2.URL(url)
    except httpx2.InvalidURL:
        raise ModelError(f"{named('base_url')} is not a valid URL: write it like http://localhost:8000/v1") from None
    local = _is_loopback(target.host)
    proxy, variable = (None, "") if local else _proxy_of(target)
    try:
        trusted = _certificates_named()
    except ModelError as error:
        if "https" in (target.scheme, proxy and proxy.url.scheme):
            raise
        log.log(logging.DEBUG if local else logging.WARNING, "%s; %s needs none", error, url)
        trusted = None
    if trusted is None and target.scheme == "https":
        trusted = httpx2.create_ssl_context(trust_env=False)
    return Route(target.host, trusted or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), proxy, variable)


def speaks_tls(url: str) -> bool:
    """Whether a TLS handshake succeeds at a URL's host and port, with any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    target = httpx2.URL(url)
    try:
        with (
            socket.create_connection((target.host, target.port or 80), PROBE_S) as connection,
            context.wrap_socket(connection, server_hostname=target.host),
        ):
            return True
    except OSError:
        return False


def _certificates_named() -> ssl.SSLContext | None:
    """The certificates in SSL_CERT_FILE or else SSL_CERT_DIR; None if neither is set."""
    if file := os.environ.get("SSL_CERT_FILE"):
        try:
            return ssl.create_default_context(cafile=file)
        except ssl.SSLError:  # an OSError
            why = "which has no certificates in PEM form"
        except OSError as error:
            why = f"which cannot be read ({error.strerror})"
        raise ModelError(_cannot_be_used("SSL_CERT_FILE", file, why))
    if folders := os.environ.get("SSL_CERT_DIR"):
        paths = [Path(each) for each in folders.split(os.pathsep) if each]
        if not any(path.is_dir() for path in paths):
            raise ModelError(_cannot_be_used("SSL_CERT_DIR", folders, "which is not a folder"))
        if not any(HASHED.fullmatch(file.name) for path in paths if path.is_dir() for file in path.iterdir()):
            why = 'which has no certificates under their hashes ("openssl rehash" names them so)'
            raise ModelError(_cannot_be_used("SSL_CERT_DIR", folders, why))
        return ssl.create_default_context(capath=folders)
    return None


def _cannot_be_used(variable: str, value: str, why: str) -> str:
    return (
        f"the environment variable {variable} is {value!r}, {why}: set it to the certificates to trust, or unset it to "
        "use those of the system"
    )


def _proxy_of(target: httpx2.URL) -> tuple[httpx2.Proxy | None, str]:
    """The proxy that the environment names for a URL and its variable; messages never show it, as it has passwords."""
    proxies = getproxies()
    scheme = next((each for each in (target.scheme, "all") if proxies.get(each)), None)
    if scheme is None or _is_direct(target):
        return None, ""
    raw, name = proxies[scheme], f"{scheme}_proxy"
    raw = raw if "://" in raw else f"http://{raw}"
    variable = name if os.environ.get(name) else name.upper()
    kind = raw.strip().partition("://")[0].lower()
    fix = f"correct or unset it, or add {target.host} to NO_PROXY"
    if kind not in ("http", "https", "socks5", "socks5h"):
        raise ModelError(
            f"the environment variable {variable} names a proxy of an unknown kind, {kind}://: write http://HOST:PORT "
            f"or socks5://HOST:PORT, unset it, or add {target.host} to NO_PROXY"
        )
    try:
        proxy = httpx2.Proxy(raw.strip())
    except (httpx2.InvalidURL, ValueError):
        proxy = None
    if proxy is None or not proxy.url.host or (proxy.url.port or 80) > 65535:
        raise ModelError(
            f"the environment variable {variable} does not hold a proxy's URL such as http://HOST:PORT, with a number "
            f"as its port: {fix}"
        )
    if kind.startswith("socks") and not is_installed("socksio"):
        raise ModelError(needs(f"the SOCKS proxy in the environment variable {variable}", "socksio") + f", {fix}")
    return proxy, variable


def _is_direct(target: httpx2.URL) -> bool:
    """Whether NO_PROXY names a URL's host or a domain of it: host, host:port, .domain, *.domain, scheme://host or *."""
    hosts = (target.host, f"{target.host}:{target.port}")
    for entry in getproxies().get("no", "").lower().split(","):
        scheme, _, name = entry.strip().rpartition("://")
        name = name.strip("[]").removeprefix("*").removeprefix(".")
        if entry.strip() == "*" or (
            name and scheme in ("", target.scheme) and any(f".{host}".endswith(f".{name}") for host in hosts)
        ):
            return True
    return False


def _is_loopback(host: str) -> bool:
    """Whether a host is this machine's loopback; 0.0.0.0 and ::, at which servers listen, lead there as well."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a name
        return host.rstrip(".") == "localhost" or host.rstrip(".").endswith(".localhost")
    return address.is_loopback or address.is_unspecified
