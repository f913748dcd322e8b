"""TLS by file: a certificate and its key, which may be renewed while the server runs."""

from __future__ import annotations

import ssl

from camshaft.errors import ConfigError


def context_of(cert: str, key: str) -> ssl.SSLContext:
    """For a server, from the paths of a PEM chain and its key. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS 1.2 at least
    context.set_alpn_protocols(["http/1.1"])
    _load(context, cert, key)
    return context


def renew(context: ssl.SSLContext, cert: str, key: str) -> None:
    """New connections see what the files hold now; open ones go on. Raises ConfigError, and nothing changes then."""
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert, key)
    _load(context, cert, key)


def _load(context: ssl.SSLContext, cert: str, key: str) -> None:
    try:
        # Without a password of some sort OpenSSL would ask for one on the terminal.
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        raise ConfigError(
            f"{cert} and {key} are no certificate and its key, in PEM and without a password: {error.reason or error}"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot read {cert} and {key}: {error.strerror or error}") from None
