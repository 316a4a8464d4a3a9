"""tritonclient[http] as it is against a KServe v2 server: triton_check.py HOST:PORT MODEL INPUTS.npz OUTPUTS.npz [API-KEY]. Metadata, readiness, index, statistics, the first case of
INPUTS as JSON, as binary tensors and asynchronously, and errors. What the model gave is written to OUTPUTS. Exits with 77 where there is no tritonclient."""
import sys

try:
    import tritonclient.http as t
except ImportError:
    sys.exit(77)
import numpy as np

address, model, given, made = sys.argv[1:5]
key = {"Authorization": "Bearer " + sys.argv[5]} if len(sys.argv) > 5 else {}
c, given = t.InferenceServerClient(address, concurrency=4), np.load(given)
case = sorted({n.split("/")[0] for n in given.files})[0]


def refused(what, says, **more):
    try:
        what(**{"headers": dict(key), **more})  # it writes into them
    except t.InferenceServerException as e:
        assert says in e.message(), e
        return
    sys.exit(f"{says}: was not refused")


def successes():
    return c.get_inference_statistics(model, headers=key)["model_stats"][0]["inference_stats"]["success"]["count"]


assert c.is_server_live(headers=key) and c.is_server_ready(headers=key) and c.is_model_ready(model, headers=key)
assert not c.is_model_ready("nobody", headers=key)
assert c.get_server_metadata(headers=key)["name"]
assert [(m["name"], m["state"]) for m in c.get_model_repository_index(headers=key)] == [(model, "READY")]
meta, config, before = c.get_model_metadata(model, headers=key), c.get_model_config(model, headers=key), successes()
for of, said in ((meta["inputs"], config["input"]), (meta["outputs"], config["output"])):
    assert [(i["name"], "TYPE_" + i["datatype"], i["shape"]) for i in of] == [(i["name"], i["data_type"], i["dims"]) for i in said], (of, said)
assert config["name"] == model and config["max_batch_size"] == 0, config


def asked(binary):
    inputs = []
    for i in meta["inputs"]:
        a = given[f"{case}/{i['name']}"]
        inputs.append(t.InferInput(i["name"], list(a.shape), i["datatype"]))
        inputs[-1].set_data_from_numpy(a, binary_data=binary)
    return {"inputs": inputs, "outputs": [t.InferRequestedOutput(o["name"], binary_data=binary) for o in meta["outputs"]], "headers": dict(key)}


results = []
for binary in (True, False):
    r = c.infer(model, **asked(binary), request_id="q")
    assert r.get_response()["model_name"] == model and r.get_response()["id"] == "q", r.get_response()
    results.append({o["name"]: r.as_numpy(o["name"]) for o in meta["outputs"]})
for r in [c.async_infer(model, **asked(True)) for _ in range(4)]:
    r = r.get_result()
    results.append({o["name"]: r.as_numpy(o["name"]) for o in meta["outputs"]})
largest = {n: max(float(np.abs(a).max()), 1e-30) for n, a in results[0].items()}
assert all(np.abs(results[0][n] - r[n]).max() <= 1e-5 * largest[n] for r in results for n in r), "answers differ"  # batches may be computed otherwise
assert successes() == before + 6, (before, successes())
refused(lambda headers: c.infer("nobody", **{**asked(True), "headers": headers}), "nobody")
wrong = asked(True)
wrong["inputs"][0] = t.InferInput("nothing", [1], "FP32")
wrong["inputs"][0].set_data_from_numpy(np.zeros(1, np.float32))
refused(lambda headers: c.infer(model, **wrong), "nothing")
if key:
    refused(lambda headers: c.infer(model, **{**asked(True), "headers": headers}), "API key", headers={})
np.savez(made, **{f"{case}/{n}": a for n, a in results[0].items()})
