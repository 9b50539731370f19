"""Settings of the processes that the tests start, made before the first of them exists."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Sums come out the same every time on one thread, and nothing may be fetched.
os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}

sys.path.insert(0, str(Path(__file__).with_name("programs")))
