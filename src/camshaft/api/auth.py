"""API keys: who may ask, and as which tenant."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from camshaft.errors import ConfigError, Unauthorized, UnknownToken

MAX_KEY_BYTES = 512
MAX_KEYS = 10_000


class Wording(NamedTuple):
    """How a key is spoken of to who has none that is known."""

    what: str
    word: str  # that stands for it in a header
    where: str  # it comes from, after what is wrong
    error: type[Unauthorized]


API_KEY = Wording("API key", "KEY", "", Unauthorized)
_FROM = "; the gateway's own are admin.token and read.token in its state folder, which `camshaft up FILE --check` names"
ADMIN_TOKEN = Wording("admin token", "TOKEN", _FROM, UnknownToken)


class Keys:
    """Digests of keys and their tenants. Without keys everybody is welcome and nobody has a tenant."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = (), wording: Wording = API_KEY) -> None:
        self._tenants: dict[bytes, str] = {}
        self._wording = wording
        for key, tenant in pairs:
            self._add(hashlib.sha256(key.encode()).digest(), tenant)

    @classmethod
    def of_digests(cls, pairs: Iterable[tuple[bytes, str]]) -> Keys:
        """From the SHA-256 digests of keys and their tenants. Raises ConfigError for one that is there twice."""
        keys = cls()
        for digest, tenant in pairs:
            keys._add(digest, tenant)
        return keys

    def _add(self, digest: bytes, tenant: str) -> None:
        if digest in self._tenants:
            raise ConfigError("an API key is listed twice; each line needs a key of its own")
        self._tenants[digest] = tenant or f"key-{digest.hex()[:8]}"

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def tenant(self, authorization: bytes | None) -> str:
        """The tenant that this Authorization header belongs to; "" where no key is asked for. Raises Unauthorized."""
        if not self._tenants:
            return ""
        what, word, where, error = self._wording
        if authorization is None:
            raise error(f"no {what}; send one as `Authorization: Bearer {word}`{where}")
        scheme, _, key = authorization.partition(b" ")
        key = key.strip()
        if scheme.lower() != b"bearer" or not key or len(key) > MAX_KEY_BYTES:
            raise error(f"the Authorization header must be `Bearer {word}`{where}")
        # Found by its digest: how long that takes tells of digests, which nobody can steer, and nothing of keys.
        found = self._tenants.get(hashlib.sha256(key).digest())
        if found is None:
            raise error(f"this {what} is not known here{where}")
        return found


def read_keys(path: str) -> Keys:
    """Keys from a file of `key` or `key tenant` lines; `#` starts a comment. Raises ConfigError; no path means no keys."""
    if not path:
        return Keys()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--api-keys: cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--api-keys: {path} is not a text file; write one `key` or `key tenant` a line") from None
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if len(words) > 2 or (words and len(words[0].encode()) > MAX_KEY_BYTES):
            raise ConfigError(f"--api-keys: {path}, line {number}: expected `key` or `key tenant`")
        if words:
            pairs.append((words[0], words[1] if len(words) == 2 else ""))
    if not pairs:
        # An empty file must not open the door to everybody.
        raise ConfigError(f"--api-keys: {path} holds no key")
    if len(pairs) > MAX_KEYS:
        raise ConfigError(f"--api-keys: {path} holds more than {MAX_KEYS} keys")
    return Keys(pairs)
