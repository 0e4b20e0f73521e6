"""Settings for all tests.

`ci` repeats the same examples on every run; `HYPOTHESIS_PROFILE=fuzz` draws many more, anew.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", deadline=None, derandomize=True, max_examples=300)
settings.register_profile("fuzz", deadline=None, max_examples=20_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
