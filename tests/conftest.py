"""What holds for every test: no GPU means a skip, no randomness between runs, no thread left."""

import importlib.util
import os
import threading
import time
from collections.abc import Iterator

import hypothesis
import pytest
import torch

# Triton decides when it is imported whether it interprets, so those tests are a run of their own:
# TRITON_INTERPRET=1 pytest tests/triton
collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["triton"]

# A slow machine must not fail a test, so there is no deadline and no check of how long examples
# take to draw. `--hypothesis-profile=explore` looks at fresh examples, and at more of them.
hypothesis.settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "explore",
    hypothesis.settings.get_profile("ci"),
    derandomize=False,
    max_examples=1000,
)
hypothesis.settings.load_profile("ci")

_THREAD_GRACE_S = 2.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips the tests marked `gpu`, with the reason, where there is no CUDA device."""
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device, and torch finds none")
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(skip)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Lets the interpreter's run pass where Triton is not to be had, and nothing was collected."""
    interpreting = os.environ.get("TRITON_INTERPRET") == "1"
    if (
        exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
        and interpreting
        and importlib.util.find_spec("triton") is None
    ):
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Fails a test that leaves a thread of hotset's behind, or any thread that bars the exit."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + _THREAD_GRACE_S
    left = _threads_that_count(before)
    while left and time.monotonic() < deadline:
        left[0].join(timeout=0.05)
        left = _threads_that_count(before)
    if left:
        names = ", ".join(sorted(thread.name for thread in left))
        pytest.fail(f"the test left {len(left)} thread(s) running: {names}", pytrace=False)


def _threads_that_count(before: set[threading.Thread]) -> list[threading.Thread]:
    return [
        thread
        for thread in threading.enumerate()
        if thread not in before and (thread.name.startswith("hotset") or not thread.daemon)
    ]
