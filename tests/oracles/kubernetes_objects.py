"""Whether strict schemas take the objects of a manifest: a line of JSON in, a line out.

Asked: {"text": the manifest}. Answer: {"accepted": …, "kinds": […], "why": […]}. Objects of
Kubernetes itself are held against the schemas of the wheel kubernetes-validate; those of Kubeflow
against the CustomResourceDefinitions in the folder $CRDS, where every field that a definition does
not name is refused. Rules in CEL are not asked.
"""

import json
import os
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

VERSION = "1.31"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def strict(schema):
    """A schema of OpenAPI as JSON Schema, without room for fields that it does not name."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: strict(value) for name, value in schema.items() if name != "properties"}
    if "properties" in schema:
        out["properties"] = {name: strict(value) for name, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            out.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        out.pop("anyOf", None)
        out["type"] = ["integer", "string"]
    return out


def definitions(folder):
    """(apiVersion, kind) -> schema."""
    found = {}
    for path in sorted(Path(folder).glob("*.yaml")):
        for each in yaml.load_all(path.read_text(), LOADER):
            if not each or each["kind"] != "CustomResourceDefinition":
                continue
            spec = each["spec"]
            for version in spec["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
                key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
                found[key] = schema
    return found


def pods(value):
    """Every pod's specification inside an object."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
        for each in value.values():
            yield from pods(each)
    elif isinstance(value, list):
        for each in value:
            yield from pods(each)


def built_in(value):
    try:
        kubernetes_validate.validate(value, VERSION, strict=True)
    except Exception as why:
        return [f"{type(why).__name__}: {why}"[:500]]
    return []


def wrong(value, known):
    schema = known.get((value.get("apiVersion"), value.get("kind")))
    if schema is None:
        return built_in(value)
    found = jsonschema.Draft7Validator(schema).iter_errors(value)
    why = [f"{each.json_path}: {each.message}"[:500] for each in found]
    for pod in pods(value):
        why += built_in({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod})
    return why


known = definitions(os.environ["CRDS"])
assert known, "no definition in $CRDS"
for line in sys.stdin:
    objects = list(yaml.load_all(json.loads(line)["text"], LOADER))
    why = [each for value in objects for each in wrong(value, known)]
    kinds = [value["kind"] for value in objects]
    print(json.dumps({"accepted": not why, "kinds": kinds, "why": why}), flush=True)
