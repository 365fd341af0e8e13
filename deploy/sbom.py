"""Writes the image's bill of materials, as CycloneDX JSON, from its lock. `make sbom` runs it.

    python sbom.py FILE

The hashes are those that pip checks in the image's build. Licences and dependencies come from the
installed packages' metadata, so nothing is downloaded, and the same lock gives the same file.
"""

import json
import re
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.spdx import is_supported_id
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "deploy/requirements.lock"
# An image is Linux and CPython, wherever its bill is written.
IMAGE = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}


def bill() -> dict[str, Any]:
    """The whole document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked: dict[str, tuple[Requirement, list[str]]] = {}
    for entry in re.split(r"\n(?=\S)", LOCK.read_text().strip()):
        requirement = Requirement(entry.split("\\")[0])
        if requirement.marker is None or requirement.marker.evaluate(IMAGE):
            hashes = re.findall(r"--hash=sha256:(\w+)", entry)
            locked[canonicalize_name(requirement.name)] = requirement, hashes
    refs = {name: f"pkg:pypi/{name}@{version(each)}" for name, (each, _) in locked.items()}
    main = f"pkg:pypi/{canonicalize_name(project['name'])}@{project['version']}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": main,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"expression": project["license"]}],
                "purl": main,
            }
        },
        "components": [component(refs[name], *locked[name]) for name in sorted(locked)],
        "dependencies": [
            {"ref": main, "dependsOn": needed(project["dependencies"], refs)},
            *(
                {"ref": refs[name], "dependsOn": needed(installed.requires or [], refs)}
                for name in sorted(locked)
                if (installed := metadata(name))
            ),
        ],
    }


def component(ref: str, requirement: Requirement, hashes: list[str]) -> dict[str, Any]:
    """One package; its distribution has the hash of each file that may be installed."""
    found = metadata(requirement.name)
    return {
        "type": "library",
        "bom-ref": ref,
        "name": requirement.name,
        "version": version(requirement),
        **({"licenses": licences(found)} if found and licences(found) else {}),
        "purl": ref,
        "externalReferences": [
            {
                "type": "distribution",
                "url": ref,
                "hashes": [{"alg": "SHA-256", "content": each} for each in hashes],
            }
        ],
    }


def licences(found: Distribution) -> list[dict[str, Any]]:
    """What the package declares: an SPDX expression, else a short name, else its classifiers."""
    if expression := found.metadata["License-Expression"]:
        return [{"expression": expression}]
    classifiers = found.metadata.get_all("Classifier") or []
    names = [each.split(" :: ")[-1] for each in classifiers if each.startswith("License ::")]
    written = found.metadata["License"] or ""
    if written and len(written) < 80:
        names = [written]
    return [
        {"license": {"id" if is_supported_id(each) else "name": each}}
        for each in sorted(set(names))
    ]


def needed(requirements: list[str], refs: dict[str, str]) -> list[str]:
    """The packages of the image that these requirements name."""
    wanted = [Requirement(each) for each in requirements]
    names = {canonicalize_name(each.name) for each in wanted}
    return sorted(refs[name] for name in names if name in refs)


def version(requirement: Requirement) -> str:
    """The version of a pinned requirement."""
    return str(requirement.specifier).removeprefix("==")


def metadata(name: str) -> Distribution | None:
    """The installed package; None if this environment does not have it."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    text = json.dumps(bill(), indent=2, ensure_ascii=False) + "\n"
    if fault := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"sbom.py: {fault}")
    file = Path(sys.argv[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    print(f"{file}: {text.count('bom-ref') - 1} packages")  # noqa: T201 -- make shows it
