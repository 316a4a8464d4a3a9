"""tritonclient[grpc] as it is against KServe v2 over gRPC: triton_grpc_check.py HOST:PORT MODEL INPUTS.npz OUTPUTS.npz [API-KEY]. Liveness, metadata, config, index, statistics, the first case of
INPUTS by raw contents, asynchronously and under a client's deadline, and errors. What the model gave is written to OUTPUTS. Exits with 77 where there is no tritonclient."""
import queue
import sys

try:
    import tritonclient.grpc as t
except ImportError:
    sys.exit(77)
import numpy as np

address, model, given, made = sys.argv[1:5]
key = {"authorization": "Bearer " + sys.argv[5]} if len(sys.argv) > 5 else {}
c, given = t.InferenceServerClient(address), np.load(given)
case = sorted({n.split("/")[0] for n in given.files})[0]


def refused(what, status, says, **more):
    try:
        what(**{"headers": key, **more})
    except t.InferenceServerException as e:
        assert e.status() == "StatusCode." + status and says in e.message(), e
        return
    sys.exit(f"{says}: was not refused")


def successes():
    return c.get_inference_statistics(model, headers=key).model_stats[0].inference_stats.success.count


assert c.is_server_live() and c.is_server_ready() and c.is_model_ready(model, headers=key)
assert not c.is_model_ready("nobody", headers=key)
assert c.get_server_metadata(headers=key).name == "hodgepodge"
assert [(m.name, m.version, m.state) for m in c.get_model_repository_index(headers=key).models] == [(model, "1", "READY")]
meta, config, before = c.get_model_metadata(model, headers=key), c.get_model_config(model, headers=key).config, successes()
assert config.name == model and [list(i.dims) for i in config.input] == [list(i.shape) for i in meta.inputs] and config.input[0].data_type == 11, config
assert meta.versions == ["1"] and [list(o.dims) for o in config.output] == [list(o.shape) for o in meta.outputs], meta


def asked():
    inputs = []
    for i in meta.inputs:
        a = given[f"{case}/{i.name}"]
        inputs.append(t.InferInput(i.name, list(a.shape), i.datatype))
        inputs[-1].set_data_from_numpy(a)
    return {"inputs": inputs, "outputs": [t.InferRequestedOutput(o.name) for o in meta.outputs], "headers": key}


r = c.infer(model, **asked(), request_id="q", model_version="1", client_timeout=60)
assert r.get_response().model_name == model and r.get_response().id == "q", r.get_response()
results, answers = [r], queue.Queue()
for _ in range(4):
    c.async_infer(model, callback=lambda result, error: answers.put(error or result), **asked())
results += [answers.get(timeout=60) for _ in range(4)]
assert not any(isinstance(r, Exception) for r in results), results
results = [{o.name: r.as_numpy(o.name) for o in meta.outputs} for r in results]
largest = {n: max(float(np.abs(a).max()), 1e-30) for n, a in results[0].items()}
assert all(np.abs(results[0][n] - r[n]).max() <= 1e-5 * largest[n] for r in results for n in r), "answers differ"  # batches may be computed otherwise
assert successes() == before + 5, (before, successes())
refused(lambda headers: c.infer("nobody", **{**asked(), "headers": headers}), "NOT_FOUND", "nobody")
refused(lambda headers: c.infer(model, **{**asked(), "headers": headers}, timeout=1), "RESOURCE_EXHAUSTED", "")
refused(lambda headers: c.infer(model, **{**asked(), "headers": headers}, compression_algorithm="gzip"), "UNIMPLEMENTED", "")
refused(lambda headers: c.load_model(model, headers=headers), "UNIMPLEMENTED", "RepositoryModelLoad")
wrong = asked()
wrong["inputs"][0] = t.InferInput("nothing", [1], "FP32")
wrong["inputs"][0].set_data_from_numpy(np.zeros(1, np.float32))
refused(lambda headers: c.infer(model, **wrong), "INVALID_ARGUMENT", "nothing")
if key:
    refused(lambda headers: c.infer(model, **{**asked(), "headers": headers}), "UNAUTHENTICATED", "API key", headers={})
    refused(lambda headers: c.get_model_metadata(model, headers=headers), "UNAUTHENTICATED", "not known", headers={"authorization": "Bearer nothing"})
np.savez(made, **{f"{case}/{n}": a for n, a in results[0].items()})
