"""A Hugging Face folder as transformers writes it (model_max_length 10^30) is deployed and answers like the GGUF file of the same model; one whose
weights have scales in tensors of their own is fetched with these."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from cluster import BUILD, Cluster, ROOT
from tap import main, skip, test

sys.path.insert(0, os.path.join(ROOT, "tests", "models"))
from scaled import quantise, tensors_read, tensors_write, values_of

HPCTL = os.path.join(BUILD, "hpctl")
SHARED = os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared"))


@test
def a_folder_with_the_default_limit_is_deployed_and_answers():
    folder = os.path.join(SHARED, "demo", "hf")
    if not os.path.exists(folder):
        skip("the demo model's folder is not there (HP_SHARED)")
    with open(os.path.join(folder, "tokenizer_config.json")) as f:
        assert json.load(f)["model_max_length"] > 2 ** 64
    with open(os.path.join(SHARED, "demo", "answers.json")) as f:
        answers = json.load(f)
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", folder, "--agents", "a0,a1", "--compute", "f32")
        for question, answer in answers[:3]:
            got = c.answer("demo", question, max_tokens=60)
            assert got == answer, (question, got, answer)


def greedy(model, question, tokens):
    chat = json.dumps({"messages": [{"role": "user", "content": question}], "add_generation_prompt": True}) + "\n"
    prompt = json.loads(subprocess.run([HPCTL, "model", "render", model, "--jsonl"], input=chat.encode(), capture_output=True, check=True).stdout)
    out = subprocess.run([HPCTL, "model", "greedy", model, "--ids", ",".join(map(str, prompt["ids"])), "--tokens", str(tokens), "--compute", "f32",
                          "-o", "json"], capture_output=True, check=True).stdout
    return json.loads(out)["text"]


@test
def weights_with_scales_come_to_agents_with_these():
    folder = os.path.join(SHARED, "demo", "hf")
    if not os.path.exists(folder):
        skip("the demo model's folder is not there (HP_SHARED)")
    with tempfile.TemporaryDirectory() as at:
        scaled = os.path.join(at, "hf")
        shutil.copytree(folder, scaled)
        os.chmod(scaled, 0o755)
        for name in sorted(os.listdir(scaled)):
            path = os.path.join(scaled, name)
            os.chmod(path, 0o644)
            if name.endswith(".safetensors"):
                tensors = tensors_read(path)
                for tensor, (dtype, shape, raw) in list(tensors.items()):
                    if tensor.endswith("_proj.weight"):
                        bits, scales, _ = quantise(values_of(dtype, shape, raw), "F8_E4M3", "rows")
                        tensors[tensor] = ("F8_E4M3", shape, bits.tobytes())
                        tensors[tensor.replace("weight", "weight_scale")] = ("F32", scales.shape, scales.tobytes())
                tensors_write(path, tensors)
        question = "What is the capital of France?"
        wanted = greedy(scaled, question, 12)
        with Cluster(agents=2, cores=1) as c:
            c.deploy("demo", scaled, "--agents", "a0,a1", "--compute", "f32")
            got = c.answer("demo", question, max_tokens=12)
            assert got and wanted.startswith(got.rstrip()), (got, wanted)


main()
