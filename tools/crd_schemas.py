"""Holds what specops renders, and the schemas in tests/schemas, against the real schemas of their kinds.

    python tools/crd_schemas.py CHECKOUTS [FILE.yaml …]

CHECKOUTS holds checkouts of kserve/kserve, kubernetes-sigs/lws, prometheus-operator/prometheus-operator and
vllm-project/production-stack, by their last names. The schemas of tests/schemas are subsets: each of their
fields must be in the real one with its type, and what the real one requires must be required. A FILE is what
`launch render` or `helm template` wrote; unknown fields count as errors, as for
`kubectl apply --validate=strict`. Exits with 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator

SCHEMAS = Path(__file__).parents[1] / "tests" / "schemas"
Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    subset: str
    path: str
    kind: str | None = None
    """None: the file is a JSON schema itself, of values without a kind."""

    version: str | None = None

    def read(self, checkouts: Path) -> Schema:
        text = (checkouts / self.path).read_text(encoding="utf-8")
        if self.kind is None:
            values: Schema = json.loads(text)
            return values
        versions = yaml.load(text, Loader=yaml.CSafeLoader)["spec"]["versions"]
        found: Schema = next(one for one in versions if one["name"] == self.version)["schema"]
        return strict(found["openAPIV3Schema"])


SOURCES = (
    Source(
        "kserve.json",
        "kserve/config/crd/full/serving.kserve.io_inferenceservices.yaml",
        "InferenceService",
        "v1beta1",
    ),
    Source(
        "kserve-llm.json",
        "kserve/config/crd/full/llmisvc/serving.kserve.io_llminferenceservices.yaml",
        "LLMInferenceService",
        "v1alpha2",
    ),
    Source(
        "leaderworkerset.json",
        "lws/config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
        "LeaderWorkerSet",
        "v1",
    ),
    Source(
        "podmonitor.json",
        "prometheus-operator/example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "PodMonitor",
        "v1",
    ),
    Source("production-stack.json", "production-stack/helm/values.schema.json"),
)


def strict(schema: Schema) -> Schema:
    """An OpenAPI schema of a CRD as a JSON schema that knows its fields alone."""
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "patternProperties"):
            made[key] = {name: strict(one) for name, one in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            made[key] = strict(value)
        elif key in ("anyOf", "allOf", "oneOf"):
            made[key] = [strict(one) for one in value]
        elif not key.startswith("x-") and key not in ("description", "format", "nullable"):
            made[key] = value
    open_ = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if "properties" in made and not open_ and made.get("type") == "object":
        made["additionalProperties"] = False
    return made


def unlike(own: Schema, real: Schema, at: str) -> Iterator[str]:
    """Where `own` is not a subset of `real`."""
    known, free = real.get("properties"), real.get("additionalProperties", True)
    if at in ("", ".metadata"):  # a CRD says nothing of apiVersion's value, or of metadata
        known = known or {}
    types = real.get("type", [one.get("type") for one in real.get("anyOf", ())])
    said = own.get("type")
    if said and types and not set(_listed(said)) <= set(_listed(types)):
        yield f"{at}: {said}, and really {types}"
    if at != ".metadata":
        for name in sorted(set(real.get("required", ())) - set(own.get("required", ()))):
            if name in own.get("properties", {}):
                yield f"{at}.{name} is required"
    for name, one in own.get("properties", {}).items():
        if known and name in known:
            yield from unlike(one, known[name], f"{at}.{name}")
        elif isinstance(free, dict):
            yield from unlike(one, free, f"{at}.{name}")
        elif known and at != ".metadata":
            yield f"{at}.{name} does not exist"
    if "items" in own and "items" in real:
        yield from unlike(own["items"], real["items"], f"{at}[]")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def wrong(path: Path, schemas: Mapping[str | None, Schema]) -> Iterator[str]:
    """Of the documents of a file whose kinds are in `schemas`."""
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        kind = document.get("kind")
        schema = schemas.get(kind) if kind or "servingEngineSpec" in document else None
        for error in Draft7Validator(schema).iter_errors(document) if schema else ():
            yield f"{path}: {error.json_path}: {error.message[:200]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Hold rendered files against the real schemas.")
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("files", type=Path, nargs="*")
    given = parser.parse_args()
    schemas: dict[str | None, Schema] = {one.kind: one.read(given.checkouts) for one in SOURCES}
    faults = []
    for one in SOURCES:
        own = json.loads((SCHEMAS / one.subset).read_text(encoding="utf-8"))
        faults += [f"{one.subset}: {text}" for text in unlike(own, schemas[one.kind], "")]
    for path in given.files:
        faults += wrong(path, schemas)
    print("\n".join(faults) or f"{len(SOURCES)} subsets and {len(given.files)} files are of the real schemas")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
