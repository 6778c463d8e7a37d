"""tools/crd_schemas.py on a small CustomResourceDefinition: the real ones are of megabytes and not stored."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from crd_schemas import SCHEMAS, SOURCES, Source, strict, unlike, wrong

POD = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {"size": {"type": "integer", "format": "int32"}, "name": {"type": "string"}, "pod": POD},
}
REAL = strict({"type": "object", "properties": {"kind": {"type": "string"}, "spec": SPEC}})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"size": 2, "pod": {"anything": 1}}, ""),
        ({"size": 2, "nmae": "x"}, "$.spec: Additional properties are not allowed ('nmae' was unexpected)"),
        ({"size": "2"}, "$.spec.size: '2' is not of type 'integer'"),
        ({"name": "x"}, "$.spec: 'size' is a required property"),
    ],
)
def test_what_a_rendered_file_has_wrong(spec, said, tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(yaml.safe_dump({"kind": "Small", "spec": spec}))
    assert list(wrong(path, {"Small": REAL})) == ([f"{path}: {said}"] if said else [])


@pytest.mark.parametrize(
    ("properties", "required", "said"),
    [
        ({"size": {"type": "integer"}}, ["size"], []),
        ({"size": {"type": "integer"}}, [], [".spec.size is required"]),
        ({"size": {"type": "string"}}, ["size"], [".spec.size: string, and really integer"]),
        ({"sizes": {"type": "integer"}}, [], [".spec.sizes does not exist"]),
    ],
)
def test_a_stored_subset_is_held_against_the_real_schema(properties, required, said) -> None:
    own = {"properties": {"spec": {"type": "object", "properties": properties, "required": required}}}
    assert list(unlike(own, REAL, "")) == said


def test_a_version_of_a_definition_is_read(tmp_path: Path) -> None:
    crd = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": SPEC}}]}}
    (tmp_path / "crd.yaml").write_text(yaml.safe_dump(crd))
    assert Source("", "crd.yaml", "Small", "v1").read(tmp_path) == strict(SPEC)


def test_each_stored_subset_has_its_source() -> None:
    stored = {path.name for path in SCHEMAS.glob("*.json")} - {"compose-spec.json"}
    assert stored == {one.subset for one in SOURCES}
    for one in SOURCES:
        description = json.loads((SCHEMAS / one.subset).read_text(encoding="utf-8"))["description"]
        assert one.path.rsplit("/", 1)[-1].split("_")[-1].split(".")[0] in description
