"""Answers held to JSON schemas: a model of random weights at temperature 2, through HTTP, and the validator of the package `jsonschema` as the judge.

    schemas.py ANSWERS SEED

Of the schemas below, and of those of the JSON-schema test-suite (draft 2020-12) that use no other keywords than these do, at least 98 % have to compile, not counting those that docs/api.md says are refused (nothing fits them, they
refer to other documents, ways of oneOf overlap, or a text has a NUL); ANSWERS answers (5000 in check-long) are drawn in turn under those that do,
and each has to be whole and valid. The suite comes with the sources of `jsonschema`: pip is asked for both; HP_SCHEMA_SUITE names a folder with tests/draft2020-12 below it, and without either the schemas below are all there is."""
import glob
import json
import os
import subprocess
import sys
import tarfile
import tempfile

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", d) for d in ("proc", "")]
from cluster import Cluster, ROOT  # noqa: E402

SOURCES = "jsonschema==4.23.0"
TEXT, WHOLE, NUMBER, YES = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}


def record(required=None, **properties):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required, "additionalProperties": False}


TREE = {"$defs": {"node": record(["value"], value=WHOLE, left={"$ref": "#/$defs/node"}, right={"$ref": "#/$defs/node"})}, "$ref": "#/$defs/node"}
SCHEMAS = [
    TEXT, WHOLE, NUMBER, YES, {"type": "null"}, {"type": ["string", "null"]}, {"enum": ["a", 1, None, {"b": [True]}]}, {"const": {"x": [1, "é"]}}, {"type": "object"}, {"type": "array"},
    {"type": "string", "minLength": 3, "maxLength": 5}, {"type": "string", "pattern": "^[a-z]{2,8}(-[0-9]+)?$"}, {"type": "string", "pattern": "b", "maxLength": 30}, {"type": "string", "enum": ["x", "yy"]},
    *({"type": "string", "format": f} for f in ("date", "time", "date-time", "uuid", "email", "ipv4")),
    {"type": "integer", "minimum": -5, "maximum": 120}, {"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 100}, {"type": "number", "minimum": 0, "maximum": 2}, {"type": "number", "exclusiveMinimum": -1},
    {"type": "array", "items": WHOLE, "minItems": 2, "maxItems": 4}, {"type": "array", "prefixItems": [WHOLE, TEXT], "items": False}, {"type": "array", "prefixItems": [YES], "items": NUMBER, "minItems": 1},
    record(name=TEXT, age={"type": "integer", "minimum": 0, "maximum": 150}), record([], a=YES, b=WHOLE, c={"type": "null"}), record(["b"], a=YES, b=WHOLE), record(list=TREE, one=YES) | {"$defs": TREE["$defs"]},
    {"type": "object", "properties": {"id": WHOLE}, "required": ["id"], "additionalProperties": {"type": ["string", "number", "boolean"]}}, {"type": "object", "additionalProperties": WHOLE},
    {"anyOf": [WHOLE, record(a=TEXT)]}, {"oneOf": [record(kind={"const": "a"}, x=WHOLE), record(kind={"const": "b"}, y=YES)]}, {"allOf": [record(["a"], a=WHOLE), {"properties": {"a": {"minimum": 3}}}]}, TREE,
    record(items={"type": "array", "items": record(sku={"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"}, count={"type": "integer", "minimum": 1}), "maxItems": 3}, paid=YES),
]


# What is refused by intent: in the words of the refusal.
MEANT = ("no value is of this schema", "is outside of the schema", "it could not be shown that no value is of", "cannot stand in a text", "a schema is missing")


def keywords(schema):
    """Of a schema and all below it; what stands in enum, const and the like is no schema."""
    found = set()
    for key, value in schema.items() if isinstance(schema, dict) else ():
        found.add(key)
        below = value.values() if key in ("properties", "$defs") and isinstance(value, dict) else value if isinstance(value, list) and key in ("anyOf", "allOf", "oneOf", "prefixItems") else [value] if key in ("items", "additionalProperties") else ()
        for one in below:
            found |= keywords(one)
    return found


def suite(folder):
    """The test-suite's schemas that use what the schemas here do."""
    named = os.environ.get("HP_SCHEMA_SUITE")
    if not named:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "jsonschema", "--dest", folder, SOURCES], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=1200)
        for archive in glob.glob(os.path.join(folder, "*.tar.gz")):
            with tarfile.open(archive) as t:
                t.extractall(folder, [m for m in t.getmembers() if "/tests/draft2020-12/" in m.name and m.isreg()])
    known = set().union(*map(keywords, SCHEMAS)) | {"$schema", "title", "description", "default", "$comment"}
    found = []
    for file in sorted(glob.glob(os.path.join(named or folder, "**", "tests", "draft2020-12", "**", "*.json"), recursive=True)):
        with open(file) as f:
            found += [case["schema"] for case in json.load(f) if keywords(case["schema"]) <= known]
    return found


def validator(folder):
    """The package, from the index where it is not installed."""
    try:
        import jsonschema
    except ImportError:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, SOURCES], stdin=subprocess.DEVNULL, check=True, timeout=300)
        sys.path.append(folder)
        import jsonschema
    return jsonschema


def main(answers, seed):
    with tempfile.TemporaryDirectory() as folder, Cluster(agents=1, cores=2) as c:
        jsonschema = validator(os.path.join(folder, "packages"))
        model = os.path.join(folder, "random.gguf")
        subprocess.run([os.environ.get("PYTHON", "/usr/bin/python3"), os.path.join(ROOT, "bench", "make_random_model.py"), model, "--type", "f32", "--blocks", "2", "--width", "128", "--heads", "4", "--kv-heads", "2", "--mlp", "256",
                        "--vocabulary", "4000", "--context", "1024", "--seed", str(seed)], check=True, stdout=subprocess.DEVNULL)
        c.deploy("random", model)
        more = suite(folder)
        good, refused, drawn, at = [*SCHEMAS, *more], [], 0, 0
        n_all = len(good)
        while drawn < answers:
            schema = good[at % len(good)]
            body = {"model": "random", "messages": [{"role": "user", "content": "x"}], "temperature": 2, "n": min(16, answers - drawn), "max_tokens": 160, "seed": seed + at,
                    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
            status, reply = c.request("POST", "/v1/chat/completions", body)
            if status == 400 and "max_tokens" not in reply["error"]["message"]:
                refused.append((schema, reply["error"]["message"]))
                good.remove(schema)
                continue
            assert status == 200, (schema, reply)
            for choice in reply["choices"]:
                text = choice["message"]["content"]
                assert choice["finish_reason"] == "stop", (schema, choice)
                try:
                    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).validate(json.loads(text))
                except (ValueError, jsonschema.ValidationError) as e:
                    raise AssertionError(f"{json.dumps(schema)}\ndoes not hold of\n{text}\n{e}")
            drawn += len(reply["choices"])
            at += 1
        meant = [x for x in refused if any(m in x[1] for m in MEANT)]
        refused = [x for x in refused if x not in meant]
        n_all -= len(meant)
        for schema, why in refused:
            print("# refused:", json.dumps(schema)[:200], "-", why)
        assert len(refused) <= 0.02 * n_all, f"{len(refused)} of {n_all} schemas do not compile"
        print(f"{n_all - len(refused)} of {n_all} schemas compile (of {len(more)} of the test-suite {len(meant)} are refused by intent); {drawn} answers at temperature 2 of a model with random weights (seed {seed}): all valid")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
