"""What the chart renders is valid Kubernetes, whatever is switched on."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
import kubernetes_validate
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.kubernetes.chart import CHART, EVERYTHING, VALUES, Refused, helm, rendered
from tests.kubernetes.programs import BUILD_WITHIN_S, definitions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILD_WITHIN_S)]

NEWEST = kubernetes_validate.latest_version()
OLDEST = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"].strip(">=").split("-")[0]


@cache
def validator_of(kind: str, api_version: str) -> jsonschema_rs.Validator:
    """Checks objects of an operator's kind strictly."""
    definition = yaml.safe_load(definitions()[kind].read_text())["spec"]
    group, _, name = api_version.partition("/")
    assert definition["group"] == group
    (version,) = (each for each in definition["versions"] if each["name"] == name)
    return jsonschema_rs.validator_for(strict(version["schema"]["openAPIV3Schema"]))


def strict(schema: Any) -> Any:
    """The same schema, which refuses fields that it does not have."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(each) for name, each in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        made.setdefault("additionalProperties", "x-kubernetes-preserve-unknown-fields" in schema)
    return made


def problems(objects: tuple[dict[str, Any], ...], version: str) -> Iterator[str]:
    for each in objects:
        name = f"{each['kind']} {each['metadata']['name']}"
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{name}: {error.json_path}: {error.message}"
        except kubernetes_validate.SchemaNotFoundError:
            validator = validator_of(each["kind"], each["apiVersion"])
            yield from (f"{name}: {error}" for error in validator.iter_errors(each))
    keys = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("values", VALUES)
def test_lint_finds_nothing(values):
    helm("lint", "--strict", str(CHART), f"--values={VALUES[values]}")


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("values", VALUES)
def test_every_object_is_valid(values, version):
    assert list(problems(rendered(values), version)) == []


def switches(tree: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of the values that switch something on."""
    for name, each in tree.items():
        if isinstance(each, dict):
            yield from switches(each, f"{path}{name}.")
        elif each is True:
            yield path + name


NEEDS = re.compile(r"execution error at \(.*\): [\w.]+: needs .+; set .+")
SWITCHES = tuple(switches(yaml.safe_load(EVERYTHING.read_text())))


@given(off=st.sets(st.sampled_from(SWITCHES), min_size=1), standalone=st.booleans())
@example(off=set(SWITCHES), standalone=False)
@example(off={"spool.enabled"}, standalone=True)
@settings(max_examples=10)
def test_each_set_of_switches_renders_valid_objects_or_says_what_it_needs(off, standalone):
    changed = [f"{each}=false" for each in sorted(off)]
    if standalone:
        changed += ["standalone.enabled=true", "config.kafka.clusters=null"]
    try:
        found = list(problems(rendered(EVERYTHING.name, *changed), NEWEST))
    except Refused as refused:
        found = [] if NEEDS.search(str(refused)) else [str(refused)]
    assert found == []
