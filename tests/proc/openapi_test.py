"""What /openapi.json says of the API against what a coordinator does: schemathesis makes requests of it, good ones and bad ones, and judges the answers: no fault
of the server's, and status, headers, type and body as described. The fuzzer is installed for the test where a package index gives it."""
import json
import os
import subprocess
import sys
import tempfile

from cluster import Cluster, SCALE
from tap import main, skip, test

FUZZER = ["schemathesis==4.4.4", "hypothesis==6.140.0"]  # with later ones of the second the first does not run
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,unsupported_method"
EXAMPLES = int(os.environ.get("HP_FUZZ_EXAMPLES", "4"))  # of each path
PHASES = os.environ.get("HP_FUZZ_PHASES", "fuzzing")  # with `coverage` those at the edges of each description, too
SEED = os.environ.get("HP_FUZZ_SEED", "1")


def bounded(document):
    """The description with what keeps the test short: the deployment that there is, answers of a few tokens, and without the stream that never ends."""
    schemas = document["components"]["schemas"]
    del document["paths"]["/api/hp/live"]
    for schema in schemas.values():
        if "model" in schema.get("properties", {}) and "created" not in schema["properties"] and "id" not in schema["properties"]:
            schema["properties"]["model"] = {"enum": ["demo"]}
    for name, field in (("Sampling", "max_tokens"), ("ResponsesRequest", "max_output_tokens"), ("MessagesRequest", "max_tokens"), ("OllamaOptions", "num_predict"), ("LlamaSampling", "n_predict")):
        schemas[name]["properties"][field] = {"type": "integer", "minimum": 1, "maximum": 4}
        schemas[name].setdefault("required", []).append(field)
    for name in ("OllamaChatRequest", "OllamaGenerateRequest"):
        schemas[name]["required"].append("options")
    sampling = schemas["Sampling"]["properties"]
    sampling["n"]["maximum"] = 3
    for name in ("best_of", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar", "structured_outputs", "json_schema"):
        del sampling[name]  # each excludes others: with all of them no request would be a good one
    return document


def fuzzer(folder):
    """The environment of a python that has it."""
    if subprocess.run([sys.executable, "-c", "import schemathesis"], capture_output=True).returncode == 0:
        return {}
    try:
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary", ":all:", "--retries", "0", "--timeout", "10",
                               "--disable-pip-version-check", "--no-cache-dir", "--target", folder, *FUZZER], capture_output=True, text=True, timeout=60 * SCALE)
    except subprocess.TimeoutExpired:
        skip("the package index did not give schemathesis within a minute")
    if done.returncode:
        skip("no package index gave schemathesis: " + (done.stderr.strip().splitlines() or [""])[-1][:200])
    return {"PYTHONPATH": folder}


@test
def answers_are_as_openapi_json_describes_them():
    with tempfile.TemporaryDirectory() as folder:
        more = fuzzer(os.path.join(folder, "python"))
        with Cluster(agents=1) as c:
            c.deploy()
            status, document = c.request("GET", "/openapi.json")
            assert status == 200 and document["openapi"].startswith("3."), (status, document)
            path = os.path.join(folder, "openapi.json")
            with open(path, "w") as f:
                json.dump(bounded(document), f)
            command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run", path, "--url", c.http, "--checks", CHECKS, "--seed", SEED, "--max-examples", str(EXAMPLES),
                       "--phases", PHASES, "--request-timeout", str(30 * SCALE), "--continue-on-failure", "--no-color", "--no-shrink",
                       "--suppress-health-check", "all", "--generation-database", "none", "--warnings", "off"]
            run = subprocess.run(command, env={**os.environ, **more}, cwd=folder, capture_output=True, text=True, timeout=1200 * SCALE)
            said = run.stdout + run.stderr
            print("\n".join("# " + line for line in run.stdout.splitlines()[-12:]))
            assert run.returncode == 0, said[-20000:]
            assert c.answer("demo", "Hello", max_tokens=3) is not None


main()
