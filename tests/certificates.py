"""Self-signed certificates for 127.0.0.1, made by the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by the openssl command")


def make_certificate(folder: Path, name: str) -> tuple[str, str]:
    """Paths of a certificate and its key."""
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=camshaft"
    command = [*words.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return str(cert), str(key)
