"""These tests run Triton's kernels in its interpreter, on the CPU."""

import importlib.util
import os

import pytest

# Without Triton there is nothing to interpret.
collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["test_*.py"]

if os.environ.get("TRITON_INTERPRET") != "1":
    # Triton decides when it is imported; set any later, the variable would do nothing.
    raise pytest.UsageError(
        "tests/triton needs Triton's interpreter from the start of the process: "
        "run `TRITON_INTERPRET=1 pytest tests/triton`"
    )
