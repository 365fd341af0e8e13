"""Writes the nodes' settings into the chart's values.schema.json: `python deploy/helm/settings.py`.

So Helm refuses a misspelt setting before a pod does.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from hermes_actors.config import Config

SCHEMA = Path(__file__).parent / "hermes-actors" / "values.schema.json"
# Only the chart knows these.
_SET_BY_THE_CHART = {
    "Config": ("dc", "node", "roles"),
    "MemoryConfig": ("host", "port", "url"),
    "PullConfig": ("host", "port", "url"),
    "SpoolConfig": ("enabled", "directory"),
    "LogConfig": ("directory",),
    "TlsConfig": ("certificate_file", "key_file"),
    "ManagementTlsConfig": ("certificate_file", "key_file"),
    "GrpcTlsConfig": ("certificate_file", "key_file"),
}
_WORDS_FOR_READERS = ("title", "description", "default")
# Helm reads numbers as floats, which are exact up to here.
_WHOLE_MAX = 2**53


def definitions() -> dict[str, Any]:
    """Return the schema of each section of the settings, by the name of its class."""
    found: dict[str, Any] = msgspec.json.schema(Config)["$defs"]
    for name, settings in _SET_BY_THE_CHART.items():
        for each in settings:
            del found[name]["properties"][each]
    return {name: _bare(each) for name, each in found.items()}


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    bare = {name: each for name, each in schema.items() if name not in _WORDS_FOR_READERS}
    if "properties" in bare:
        bare["properties"] = {name: _bare(each) for name, each in bare["properties"].items()}
        del bare["required"]
    if bare.get("type") == "integer":
        bare["maximum"] = _WHOLE_MAX
    return bare


def main() -> None:
    """Replace the sections, whose names begin with a capital letter."""
    schema = json.loads(SCHEMA.read_text())
    own = {name: each for name, each in schema["$defs"].items() if name.islower()}
    schema["$defs"] = own | definitions()
    SCHEMA.write_text(json.dumps(schema, indent=1) + "\n")


if __name__ == "__main__":
    main()
