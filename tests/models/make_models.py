"""Makes small models with known answers (1 MB in all): `make_models.py FOLDER`. Each has a folder of its own with

    hf/                  config, safetensors, tokenizer          model-TYPE.gguf      the same as GGUF
    expected.json        prompts with logits and greedy ids, tokenize, chat; rounded_weights for files whose weights were rounded
    logits*.npy          float32 [tokens, vocabulary]

The answers come from reference.py and tokenizers.py in this folder, which share no code with the project's own. Needs numpy alone; two runs give
the same bytes. The layout is that of the golden models kept outside the repository, so one test reads both."""
import json
import os
import shutil
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import reference
from formats import F32, STRING, U32, encode, gguf_write, hub_write, rounded
from tokenizers import ByteBpe, SentencePiece

# ---- the models ----------------------------------------------------------------------------------------------------

CHATML = ("{% for message in messages %}{{ '<|start|>' + message['role'] + '\\n' + message['content'] | trim + '<|end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|start|>assistant\\n' }}{% endif %}")
TURNS = """{% for message in messages %}
    {% if message.role == 'user' %}
        {% if loop.index0 % 2 != 0 %}
            {{ raise_exception('Users and assistants must take turns') }}
        {% endif %}
{{ bos_token }}[USER] {{ message['content'] }} [/USER]
    {%- else %}
 {{ message['content'] }}{{ eos_token }}
    {%- endif %}
{% endfor %}"""


def render_chatml(messages, prompt):
    text = "".join(f"<|start|>{m['role']}\n{m['content'].strip()}<|end|>\n" for m in messages)
    return text + ("<|start|>assistant\n" if prompt else "")


def render_turns(messages, _prompt):
    out = ""
    for i, m in enumerate(messages):
        if m["role"] == "user" and i % 2:
            return None
        out += f"<s>[USER] {m['content']} [/USER]" if m["role"] == "user" else f" {m['content']}</s>"
    return out


MODELS = [
    {"name": "spm", "tokenizer": SentencePiece(60), "template": TURNS, "render": render_turns, "refusal": "must take turns",
     "width": 48, "blocks": 2, "heads": 4, "kv_heads": 2, "head_dim": 20, "mlp": 80, "tied": False, "rope_theta": 10000.0, "rope_linear": 2.0, "epsilon": 1e-5,
     "context": 256, "hub_type": "mistral", "hub_dtype": "BF16", "base": "BF16", "gguf": ["F16"], "shards": 2, "newer_config": True},
    {"name": "bpe", "tokenizer": ByteBpe(60), "template": CHATML, "render": render_chatml, "refusal": None,
     "width": 32, "blocks": 3, "heads": 4, "kv_heads": 1, "head_dim": 16, "mlp": 64, "tied": True, "rope_theta": 500000.0, "epsilon": 1e-6,
     "context": 512, "attention_bias": True, "hub_type": "llama", "hub_dtype": "F32", "base": "F32", "gguf": ["Q8_0"], "shards": 1, "newer_config": False,
     "rope_llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    {"name": "window", "tokenizer": ByteBpe(60), "template": CHATML, "render": render_chatml, "refusal": None,
     "width": 32, "blocks": 3, "heads": 4, "kv_heads": 2, "head_dim": 8, "mlp": 48, "tied": False, "rope_theta": 10000.0, "epsilon": 1e-6,
     "context": 256, "attention_bias": True, "hub_type": "qwen2", "hub_dtype": "F32", "base": "F32", "gguf": [], "shards": 1, "newer_config": False,
     "window": 20, "window_from": 1},
]

PROMPTS = [("What is a slice?", 12), ("The pipeline has three", 12), ("The planner cuts the layers so that all stages take equally long. " * 2, 4)]
TEXTS = ["", " ", "Hello", "  two spaces,  and more   ", "It's 12345 o'clock; they'LL be LATE", "a\nb\r\n\n c\t\td", "naïve café, Übergröße",
         "日本語と中文", "🙂 smile", "x=3.14; y_1 = {\"k\": [1, 2]}", "the pipeline holds the layers of the first stage", "(a)(b)--!!\n\n", "1 22 333 4444"]
CHATS = [[("user", "What is a stage?")], [("user", " Hello "), ("assistant", "Hi.\nAsk."), ("user", "Café?")], [("user", "a"), ("user", "b")]]


def make_weights(c, vocabulary, rng):
    """Random weights with the names of Hugging Face files, rounded to the base format; norms stay near 1."""
    q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    shapes = {"model.embed_tokens": (vocabulary, c["width"])}
    for b in range(c["blocks"]):
        at = f"model.layers.{b}."
        shapes.update({at + "input_layernorm": (c["width"],), at + "self_attn.q_proj": (q, c["width"]), at + "self_attn.k_proj": (kv, c["width"]),
                       at + "self_attn.v_proj": (kv, c["width"]), at + "self_attn.o_proj": (c["width"], q),
                       at + "post_attention_layernorm": (c["width"],), at + "mlp.gate_proj": (c["mlp"], c["width"]),
                       at + "mlp.up_proj": (c["mlp"], c["width"]), at + "mlp.down_proj": (c["width"], c["mlp"])})
    shapes["model.norm"] = (c["width"],)
    if not c["tied"]:
        shapes["lm_head"] = (vocabulary, c["width"])
    weights = {}
    for name, shape in shapes.items():
        noise = rng.standard_normal(shape)
        plain = 1 + 0.1 * noise if len(shape) == 1 else noise * 1.6 / np.sqrt(shape[1])
        weights[name + ".weight"] = rounded(plain.astype(np.float32), c["base"])
        if c.get("attention_bias") and "self_attn" in name and not (c["hub_type"] == "qwen2" and "o_proj" in name):
            weights[name + ".bias"] = rounded((0.3 * rng.standard_normal(shape[0])).astype(np.float32), c["base"])
    return weights


# ---- GGUF ----------------------------------------------------------------------------------------------------------

GGUF_NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
              "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
              "mlp.down_proj": "ffn_down"}


def gguf_name(name):
    outer = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
    if name in outer:
        return outer[name]
    _, _, block, inner = name.split(".", 3)
    stem, kind = inner.rsplit(".", 1)
    return f"blk.{block}.{GGUF_NAMES[stem]}.{kind}"


def gguf_rows(name, array, c):
    """GGUF interleaves the two halves of each head's rows of q and k, so that neighbours rotate together."""
    heads = c["heads"] if "q_proj" in name else c["kv_heads"] if "k_proj" in name else 0
    if not heads:
        return array
    return array.reshape(heads, 2, c["head_dim"] // 2, -1).swapaxes(1, 2).reshape(array.shape)


def gguf_type_of(array, dtype):
    return "F32" if array.ndim == 1 else dtype


def write_gguf(path, c, weights, vocabulary, dtype):
    keys = [("general.architecture", STRING, "llama"), ("general.name", STRING, c["name"]), ("llama.block_count", U32, c["blocks"]),
            ("llama.context_length", U32, c["context"]), ("llama.embedding_length", U32, c["width"]), ("llama.feed_forward_length", U32, c["mlp"]),
            ("llama.attention.head_count", U32, c["heads"]), ("llama.attention.head_count_kv", U32, c["kv_heads"]),
            ("llama.attention.key_length", U32, c["head_dim"]), ("llama.attention.value_length", U32, c["head_dim"]),
            ("llama.attention.layer_norm_rms_epsilon", F32, c["epsilon"]), ("llama.rope.freq_base", F32, c["rope_theta"]),
            ("llama.rope.dimension_count", U32, c["head_dim"]), ("llama.vocab_size", U32, vocabulary),
            *c["tokenizer"].gguf_keys(), ("tokenizer.chat_template", STRING, c["template"])]
    if c.get("rope_linear"):
        keys += [("llama.rope.scaling.type", STRING, "linear"), ("llama.rope.scaling.factor", F32, c["rope_linear"])]
    tensors = []
    if c.get("rope_llama3"):
        factors = encode(reference.rope_factors(c).astype(np.float32), "F32")
        tensors.append(("rope_freqs.weight", (c["head_dim"] // 2,), "F32", lambda: [factors]))
    for name, array in weights.items():
        kind = gguf_type_of(array, dtype)
        raw = encode(gguf_rows(name, array, c), kind)
        tensors.append((gguf_name(name), array.shape, kind, lambda raw=raw: [raw]))
    gguf_write(path, keys, tensors)


# ---- the folder of Hugging Face ------------------------------------------------------------------------------------

def hub_config(c, vocabulary):
    t = c["tokenizer"]
    config = {"architectures": [c["hub_type"].capitalize() + "ForCausalLM"], "model_type": c["hub_type"], "hidden_act": "silu",
              "hidden_size": c["width"], "intermediate_size": c["mlp"], "num_hidden_layers": c["blocks"], "num_attention_heads": c["heads"],
              "num_key_value_heads": c["kv_heads"], "head_dim": c["head_dim"], "max_position_embeddings": c["context"], "rms_norm_eps": c["epsilon"],
              "tie_word_embeddings": c["tied"], "vocab_size": vocabulary, "bos_token_id": t.ids[t.bos], "eos_token_id": t.ids[t.eos]}
    if c["hub_type"] == "mistral":
        config["sliding_window"] = None
    if c["hub_type"] == "qwen2":
        config.update(use_sliding_window=True, sliding_window=c["window"], max_window_layers=c["window_from"])
    elif c.get("attention_bias"):
        config["attention_bias"] = True
    scaling = {"rope_type": "llama3", **c["rope_llama3"]} if c.get("rope_llama3") else None
    if c.get("rope_linear"):
        scaling = {"rope_type": "linear", "factor": c["rope_linear"]}
    if c["newer_config"]:
        config.update(dtype="bfloat16", rope_parameters={"rope_theta": c["rope_theta"], **(scaling or {"rope_type": "default"})})
    else:
        config.update(torch_dtype="float32", rope_theta=c["rope_theta"], rope_scaling=scaling)
    return config


def write_hub(folder, c, weights, vocabulary):
    t = c["tokenizer"]
    files = {"tokenizer.json": t.hub_json(),
             "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": t.bos, "eos_token": t.eos,
                                       "add_bos_token": True, "clean_up_tokenization_spaces": False}}
    if c["newer_config"]:
        files["chat_template.jinja"] = c["template"]
    else:
        files["tokenizer_config.json"]["chat_template"] = c["template"]
    hub_write(folder, hub_config(c, vocabulary), [(n, a, c["hub_dtype"]) for n, a in weights.items()], c["shards"], files)


# ---- the answers ---------------------------------------------------------------------------------------------------

def expect_prompts(c, weights, folder, ending, prompts):
    """Logits of the prompts into files; (their names, greedy ids, the smallest gap of all greedy steps)."""
    names, made, smallest = [], [], np.inf
    for i, (text, count) in enumerate(prompts):
        ids = c["tokenizer"].encode(text)
        names.append(f"logits{ending}_{i}.npy")
        np.save(os.path.join(folder, names[-1]), reference.logits(c, weights, ids).astype(np.float32))
        following, gap = reference.greedy(c, weights, ids, count)
        made.append(following)
        smallest = min(smallest, gap)
    return names, made, smallest


def expect_text(c):
    t = c["tokenizer"]
    tokenize = []
    for text in [*TEXTS, f"{t.bos}Hello{t.eos} again"]:
        plain = t.encode(text, False)
        tokenize.append({"text": text, "ids": t.encode(text), "ids_without_special": plain, "decoded": t.decode(plain)})
    chat = []
    for turns in CHATS:
        messages = [{"role": r, "content": x} for r, x in turns]
        for prompt in (False, True):
            text = c["render"](messages, prompt)
            answer = {"error": c["refusal"]} if text is None else {"text": text, "ids": t.encode(text, False)}
            chat.append({"messages": messages, "add_generation_prompt": prompt, **answer})
    return tokenize, chat


def make(c, folder, seed):
    """Gives the smallest gap of the greedy steps: below 1e-3 a float32 engine might choose otherwise, so another seed is taken."""
    os.makedirs(folder)
    vocabulary = len(c["tokenizer"].tokens)
    weights = make_weights(c, vocabulary, np.random.Generator(np.random.PCG64(seed)))
    write_hub(os.path.join(folder, "hf"), c, weights, vocabulary)
    names, made, smallest = expect_prompts(c, weights, folder, "", PROMPTS)
    prompts = [{"text": text, "ids": c["tokenizer"].encode(text), "logits": names[i], "greedy_ids": made[i]} for i, (text, _) in enumerate(PROMPTS)]
    rounded_weights, rounded_greedy = {}, {}
    for dtype in c["gguf"]:
        write_gguf(os.path.join(folder, f"model-{dtype.lower()}.gguf"), c, weights, vocabulary, dtype)
        if dtype == c["base"]:
            continue
        dequantised = {n: rounded(a, gguf_type_of(a, dtype)) for n, a in weights.items()}
        kind = dtype.lower()
        rounded_weights[kind], rounded_greedy[kind], gap = expect_prompts(c, dequantised, folder, "_" + kind, PROMPTS[:2])
        smallest = min(smallest, gap)
    tokenize, chat = expect_text(c)
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump({"model": c["name"], "reference": "tests/models/reference.py, float64", "prompts": prompts, "tokenize": tokenize, "chat": chat,
                   "rounded_weights": rounded_weights, "rounded_greedy_ids": rounded_greedy, "smallest_relative_gap": smallest}, f, indent=1)
    return smallest


def main():
    out = sys.argv[1]
    for c in MODELS:
        folder = os.path.join(out, c["name"])
        for seed in range(100):
            shutil.rmtree(folder, ignore_errors=True)
            if make(c, folder, seed) > 1e-3:
                break
        else:
            sys.exit(f"{c['name']}: no seed gives clear answers")
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(out) for f in files)
    print(f"{out}: {len(MODELS)} models, {size} bytes")


if __name__ == "__main__":
    main()
