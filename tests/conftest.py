"""Settings of every test run."""

from __future__ import annotations

from hypothesis import settings

# A test never fails for being slow: the machine may be busy. pytest's own timeout catches what hangs.
settings.register_profile("camshaft", deadline=None)
settings.load_profile("camshaft")
