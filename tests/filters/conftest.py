"""Tests of filters share their budgets."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
