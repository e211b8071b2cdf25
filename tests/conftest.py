"""What every test shares: how property tests run, and that tests on namespaces say why they cannot."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# No deadline: a loaded two-core machine is slow now and then, and a slow example is no wrong one.
settings.register_profile("default", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=int(os.environ.get("FUZZ_EXAMPLES", "5000")))
settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    needs_root = pytest.mark.skip(reason="builds namespaces: needs root (make test uses sudo)")
    for item in items:
        if item.get_closest_marker("netns") is not None:
            item.add_marker(needs_root)
