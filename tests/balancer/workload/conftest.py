"""The clusters that these tests plan for are in a module beside them."""

import sys
from pathlib import Path

# Test modules are imported by their path; a module beside them is found by its folder's.
sys.path.insert(0, str(Path(__file__).parent))
