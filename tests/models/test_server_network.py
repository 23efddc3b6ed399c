"""Proxies, certificates and URLs on the way to a server: from the environment, from flags, and wrong ones of each."""

import ssl
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
from faulty_servers import FaultyServer, scripted
from scripted_model import random_policy

from roomscout.agent.config import ConfigError, RunConfig, config_from_dict
from roomscout.models import ModelError, ModelOptions, ServerOptions
from roomscout.models.openai.backend import OpenAIBackend
from roomscout.models.openai.endpoint import Endpoint
from tests.conftest import RoomScans, run_main

TLS = Path(__file__).parents[1] / "fixtures" / "loopback_tls.pem"
"""A certificate of 127.0.0.1 and localhost that signs itself, valid until 2126, and its key."""
FAR = "http://roomscout.invalid/v1"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{scheme}_proxy", raising=False)
        monkeypatch.delenv(f"{scheme.upper()}_PROXY", raising=False)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(scripted(random_policy())) as server:
        yield server


@pytest.fixture
def encrypted() -> Iterator[str]:
    """The URL of a server that speaks TLS."""
    with FaultyServer(scripted(random_policy())) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS)
        http: ThreadingHTTPServer = server._server
        http.socket = context.wrap_socket(http.socket, server_side=True)
        http.handle_error = lambda *_: None
        yield server.url.replace("http:", "https:")


def check(url: str) -> None:
    OpenAIBackend("served", ModelOptions(), ServerOptions((url,), retries=1)).close()


def refused(url: str) -> str:
    with pytest.raises(ModelError) as caught:
        check(url)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("socks://127.0.0.1:7891/", "socks://: write http://HOST:PORT or socks5://HOST:PORT"),
        ("socks4://127.0.0.1:7891", "socks4://: write"),
        ("ftp://proxy:21", "ftp://: write"),
        ("http://host:port", "with a number as its port"),
        ("host:99999", "with a number as its port"),
        ("http://user:pa#ss-word@host:3128", "with a number as its port"),
        ("http://", "does not hold a proxy's URL"),
        (" ", "does not hold a proxy's URL"),
        ("http://a\nb:1", "does not hold a proxy's URL"),
    ],
)
@pytest.mark.parametrize("variable", ["ALL_PROXY", "http_proxy", "HTTPS_PROXY"])
def test_a_proxy_that_cannot_be_used_is_one_sentence_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, server: FaultyServer, variable: str, value: str, words: str
):
    monkeypatch.setenv(variable, value)
    said = refused(FAR.replace("http", "https") if variable == "HTTPS_PROXY" else FAR)
    assert f"the environment variable {variable} " in said and words in said and "NO_PROXY" in said
    assert "\n" not in said and "pa#" not in said and "ss-word" not in said
    check(server.url)  # loopback ignores proxies


@pytest.mark.skipif(find_spec("socksio") is not None, reason="socksio is installed")
def test_a_socks_proxy_names_its_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1")
    assert (
        "the SOCKS proxy in the environment variable all_proxy needs the package socksio: pip install socksio"
        in refused(FAR)
    )


def test_only_the_proxy_of_the_url_matters(monkeypatch: pytest.MonkeyPatch, server: FaultyServer):
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:7891/")
    monkeypatch.setenv("HTTP_PROXY", server.url.removeprefix("http://").removesuffix("/v1"))
    check(FAR)
    assert [request.path for request in server.requests] == ["http://roomscout.invalid/v1/chat/completions"]


@pytest.mark.parametrize("value", ["*", "roomscout.invalid", "[::1,%%%, .invalid,http://x y", "10.0.0.0/99,*.invalid"])
def test_no_proxy_of_any_form_leads_around_a_proxy(monkeypatch: pytest.MonkeyPatch, value: str):
    monkeypatch.setenv("HTTP_PROXY", "http://host:port")
    monkeypatch.setenv("NO_PROXY", value)
    Endpoint(FAR, "served", ServerOptions(()))


def test_a_dead_proxy_and_a_refusal_through_one_name_the_variable(
    monkeypatch: pytest.MonkeyPatch, server: FaultyServer
):
    monkeypatch.setenv("https_proxy", "127.0.0.1:1")
    assert "through the proxy in https_proxy ([Errno 111] Connection refused)" in refused(
        "https://roomscout.invalid/v1"
    )
    monkeypatch.setenv("HTTP_PROXY", server.url)
    server.fault = lambda request: "403"
    assert "asked through the proxy in HTTP_PROXY: to go around that, add roomscout.invalid to NO_PROXY" in refused(FAR)
    server.fault = lambda request: "407:Proxy Authentication Required"
    assert "(407: Proxy Authentication Required): put a user name and a password into" in refused(FAR)


def test_certificates_hold_on_loopback_too(monkeypatch: pytest.MonkeyPatch, encrypted: str):
    said = refused(encrypted)
    assert "certificate that this machine does not trust (self-signed certificate)" in said
    assert "SSL_CERT_FILE" in said and "start the server" not in said
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS))
    check(encrypted)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
@pytest.mark.parametrize("content", [None, b"", b"\x30\x82\x03no PEM", "a folder"])
def test_certificates_that_cannot_be_read_name_their_variable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, server, variable: str, content
):
    path = tmp_path / "certificates"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    monkeypatch.setenv(variable, str(path))
    for url in ("https://roomscout.invalid/v1", "https://127.0.0.1:1/v1"):
        assert f"the environment variable {variable} is {str(path)!r}, which" in refused(url)
    check(server.url)  # http needs none
    Endpoint(FAR, "served", ServerOptions(()))
    warned = [each.levelname for each in caplog.records if variable in each.message and each.levelname != "DEBUG"]
    assert warned == ["WARNING"]


def test_a_wrong_scheme_is_named_in_both_directions(server: FaultyServer, encrypted: str):
    assert "speaks https: write https:// in --base-url" in refused(encrypted.replace("https:", "http:"))
    assert "does not speak https: write http://" in refused(server.url.replace("http:", "https:"))


@pytest.mark.parametrize("root", ["/v1", "/v1/", "/deployments/one"])
def test_parameters_of_the_url_are_in_every_request(server: FaultyServer, root: str):
    check(server.url.removesuffix("/v1") + root + "?api-version=2024-10-21&a=1&a=2")
    (request,) = server.requests
    assert request.path == f"{root.rstrip('/')}/chat/completions?api-version=2024-10-21&a=1&a=2"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://[::1/v1", "an IPv6 address in brackets"),
        ("http://host:99999/v1", "a port from 1 to 65535"),
        ("http://host:0/v1", "a port from 1 to 65535"),
        ("http://host:port/v1", "a port from 1 to 65535"),
        ("localhost:8000/v1", "takes http:// or https:// URLs"),
        ("ftp://host/v1", "takes http:// or https:// URLs"),
        ("", "takes http:// or https:// URLs"),
        ("http:///v1", "valid host"),
        ("http://..x/v1", "valid host"),
        ("http://a b/v1", "valid host"),
        ("http://host\\v1", "valid host"),
        ("http://me:sk-secret@host/v1", "environment variable of --api-key-env"),
        ("https://host/v1?api-key=sk-secret", "environment variable of --api-key-env"),
        ("https://host/v1?x=1&key=sk-secret", "environment variable of --api-key-env"),
        ("http://host/v1#sk-secret", "leave out #"),
        ("http://host/v1/chat/completions", "leave out /chat/completions"),
    ],
)
def test_a_url_that_cannot_be_asked_is_refused_without_being_shown(url: str, words: str):
    for name, flag in (("base_url", "--base-url"), ("judge_url", "--judge-url")):
        with pytest.raises(ConfigError) as caught:
            RunConfig.of(**{name: (url,) if name == "base_url" else url})
        said = str(caught.value)
        assert said.startswith(flag) and words.replace("--api", "--judge" if "judge" in name else "--api") in said
        assert "secret" not in said


@pytest.mark.parametrize("url", ["http://bücher.example/v1", " http://h/v1 ", "http://[::1]:80", "HTTPS://H?a=b"])
def test_unusual_urls_are_taken(url: str):
    (taken,) = RunConfig.of(base_url=(url,)).server.base_url
    assert taken == url.strip()
    Endpoint(taken, "served", ServerOptions(()))


def test_one_url_of_a_yaml_file_needs_no_list():
    assert config_from_dict({"base_url": "http://h/v1"}).server.base_url == ("http://h/v1",)


@pytest.mark.parametrize("seconds", ["1e10", "2e6", "nan", "inf", "0", "-1"])
def test_a_timeout_that_no_clock_takes_is_refused(seconds: str):
    with pytest.raises(ConfigError, match="--request-timeout takes a"):
        RunConfig.of(request_timeout=seconds)


def test_the_command_ends_with_status_2_and_one_sentence(
    monkeypatch: pytest.MonkeyPatch, rooms: RoomScans, tmp_path: Path
):
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:7891/")
    ended = run_main(rooms.flags(tmp_path, "--engine", "openai", "--base-url", FAR, "--model", "served"))
    assert (ended.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "the environment variable ALL_PROXY" in ended.stderr and "Traceback" not in ended.stderr
