"""The benchmarks are scripts in their own folder; their parts are imported from there."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
