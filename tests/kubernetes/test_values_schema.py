"""Helm refuses a wrong value before a pod meets it."""

import json
import runpy
from pathlib import Path

HELM = Path(__file__).resolve().parents[2] / "deploy" / "helm"


def test_the_schema_of_the_values_has_the_settings_of_the_nodes():
    wanted = runpy.run_path(str(HELM / "settings.py"))["definitions"]()
    schema = json.loads((HELM / "hermes-actors" / "values.schema.json").read_text())
    written = {name: each for name, each in schema["$defs"].items() if name in wanted}
    assert written == wanted, "run `make values`"
