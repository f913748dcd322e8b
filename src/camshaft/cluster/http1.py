"""A small HTTP/1.1 client: connections kept alive, bodies read as they come, a deadline on every wait and a bound on everything held.

It is for one address and talks to it directly: no redirects, no cookies, no proxies from the environment. Leaving an answer before
its end closes the connection, which is how a server hears that nobody waits any more.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from camshaft.cluster.exchange import HttpFault, Link, Response, Waits
from camshaft.errors import ConfigError

MAX_IDLE = 256  # connections kept open between requests
IDLE_S = 4.0  # kept so long; uvicorn, the commonest server, closes after 5 and a request sent just then would be lost


@dataclass(frozen=True)
class Address:
    """Where a server listens. `prefix` is where its API begins, without a slash at its end."""

    host: str
    port: int
    tls: bool = False
    prefix: str = ""

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def parse_address(url: str) -> Address:
    """`https://api.example.com/v1` -> Address. Raises ConfigError, without repeating what may be a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError("an address is of the form http://HOST:PORT or https://HOST/PATH") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError("an address holds no name and no password; name the environment variable that holds the key instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or not _plain(url):
        raise ConfigError(f"an address is of the form http://HOST:PORT or https://HOST/PATH, not {url[:100]!r}")
    tls = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if tls else 80), tls, parts.path.rstrip("/"))


class _Kept(NamedTuple):
    link: Link
    since: float  # loop time


class Http1:
    """The connections to one address. Used from one event loop. How many are open at once is as many as there are requests."""

    def __init__(self, address: Address, headers: Mapping[str, str] = {}, *, connect_s: float = 10.0, ca_file: str = "") -> None:
        """`headers` go with every request. `ca_file`: certificates to trust instead of the system's. Raises ConfigError."""
        self.address = address
        self._connect_s = connect_s
        self._tls = _trusting(ca_file) if address.tls else None
        fixed = {"host": address.authority, "accept": "application/json, text/event-stream", "user-agent": "camshaft", **headers}
        self._fixed = _lines(fixed)
        self._idle: list[_Kept] = []  # the last one in is the first one out, so that what is not needed ages
        self._open: set[Link] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = ""  # why

    @property
    def heard_at(self) -> float:
        """Loop time at which a byte last came, on whichever open connection; 0 for never."""
        return max((link.heard_at for link in self._open), default=0.0)

    async def send(self, method: str, path: str, waits: Waits, *, body: bytes = b"", headers: Mapping[str, str] = {}) -> Response:
        """The answer, once its head is there; its owner closes it. `body` is JSON; of `headers` those that are printable go along.

        Raises HttpFault.
        A kept connection that turns out to be closed before a byte came back is replaced by a new one: the server had let go of it.
        """
        own = "".join([f"{name}: {value}\r\n" for name, value in headers.items() if _plain(value)])
        if body:
            own = f"{own}content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        data = b"%b%b%b\r\n%b" % (f"{method} {path} HTTP/1.1\r\n".encode(), self._fixed, own.encode(), body)
        kept = self._take()
        if kept is not None:
            try:
                return await kept.ask(data, waits)
            except HttpFault as fault:
                if fault.kind != "cut" or fault.heard or self._closed:
                    raise
        link = await self._connect(waits)
        return await link.ask(data, waits)

    def abort(self, why: str) -> None:
        """End every exchange with a fault, at once; later ones work again."""
        for link in list(self._open):
            link.fail(HttpFault("cut", why))

    def close(self, why: str = "closed") -> None:
        """The same for good. Idempotent."""
        self._closed = why
        self.abort(why)
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _take(self) -> Link | None:
        if self._closed:
            raise HttpFault("connect", self._closed)
        return self._idle.pop().link if self._idle else None

    async def _connect(self, waits: Waits) -> Link:
        loop = asyncio.get_running_loop()
        address = self.address
        limit_s = min(self._connect_s, waits.deadline_at - loop.time())
        try:
            async with asyncio.timeout(limit_s):
                _, link = await loop.create_connection(
                    lambda: Link(loop, self._free, self._lost),
                    address.host,
                    address.port,
                    ssl=self._tls,
                    server_hostname=address.host if address.tls else None,
                )
        except TimeoutError:
            if limit_s < self._connect_s:
                raise HttpFault("late", "the deadline passed while connecting") from None
            raise HttpFault("connect", f"{address.authority} took no connection within {limit_s:g} s") from None
        except OSError as error:  # TLS's errors are among them
            raise HttpFault("connect", f"{address.authority} cannot be reached: {_reason(error)}") from None
        self._open.add(link)
        if self._closed:
            link.fail(HttpFault("cut", self._closed))
        return link

    def _free(self, link: Link) -> None:
        """The link's answer is complete and the server keeps the connection."""
        if self._closed or len(self._idle) >= MAX_IDLE:
            link.drop()
            return
        loop = asyncio.get_running_loop()
        self._idle.append(_Kept(link, loop.time()))
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_S, self._drop_old)

    def _lost(self, link: Link) -> None:
        self._open.discard(link)
        self._idle = [kept for kept in self._idle if kept.link is not link]

    def _drop_old(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() - IDLE_S
        old = [kept for kept in self._idle if kept.since <= due]
        self._idle = self._idle[len(old) :]  # in order of age: what was put back last stands last
        for kept in old:
            kept.link.drop()
        self._sweep = loop.call_at(self._idle[0].since + IDLE_S, self._drop_old) if self._idle else None


def _trusting(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise ConfigError(f"the certificates in {ca_file} cannot be read: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__)[:200]


def _lines(headers: Mapping[str, str]) -> bytes:
    """Raises ValueError for a header that would end its line."""
    if not all(_plain(name) and _plain(value) for name, value in headers.items()):
        raise ValueError("a header is not printable ASCII")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
