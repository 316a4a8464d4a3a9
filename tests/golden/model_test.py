"""Model files against known answers: tokens, templates, logits and greedy ids, by the same verbs that a person uses.

The models are those that tests/models/make_models.py makes, those of $HP_GOLDEN (default ../shared/golden), and the demo model with its exact
answers (../shared/demo, or examples/demo-model)."""
import contextlib
import glob
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from tap import main, skip, test

BUILD = os.environ.get("HP_BUILD", os.path.join(ROOT, "build"))
HPCTL = os.path.join(BUILD, "hpctl")
MADE = os.path.join(BUILD, "models")
SHARED = os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared"))
GOLDEN = os.environ.get("HP_GOLDEN", os.path.join(SHARED, "golden"))
FAMILIES = ["llama2", "llama3", "llama-yarn", "mistral-nowindow", "mistral-window", "qwen2", "qwen3", "gpt2"]
MORE_GOLDEN = os.environ.get("HP_GOLDEN_FAMILIES", os.path.join(SHARED, "golden-families"))
MORE_FAMILIES = ["gemma2", "gemma2-scalar", "gemma3", "granite", "phi3", "mixtral", "qwen2_moe", "qwen3_moe", "qwen3_moe-dense", "gpt_oss", "gpt_oss-mxfp4", "deepseek2"]


def hpctl(*words, stdin=None):
    run = subprocess.run([HPCTL, *map(str, words)], input=stdin, capture_output=True, timeout=300)
    assert run.returncode == 0, f"hpctl {' '.join(map(str, words))[:200]}: exit {run.returncode}: {run.stderr.decode(errors='replace')[:500]}"
    return run.stdout


def lines(verb, model, values, *options):
    """One JSON value a line in, one object a line out."""
    out = hpctl("model", verb, model, "--jsonl", *options, stdin="".join(json.dumps(v) + "\n" for v in values).encode())
    answers = [json.loads(line) for line in out.decode().splitlines()]
    assert len(answers) == len(values), f"{len(values)} lines in, {len(answers)} out"
    return answers


def has_verb(verb):
    return subprocess.run([HPCTL, "model", verb, "--help"], capture_output=True).returncode == 0


def need_verb(verb):
    if not has_verb(verb):
        skip(f"this build has no `hpctl model {verb}`")


def expected_of(folder):
    if not os.path.exists(os.path.join(folder, "expected.json")):
        skip(f"{os.path.basename(folder)} is not there (HP_GOLDEN points at models with known answers)")
    with open(os.path.join(folder, "expected.json")) as f:
        return json.load(f)


def files_of(folder):
    return [os.path.join(folder, "hf"), *sorted(glob.glob(os.path.join(folder, "model-*.gguf")))]


def kind_of(model):
    name = os.path.basename(model)
    return name.removeprefix("model-").removesuffix(".gguf") if name.endswith(".gguf") else "hf"


def rope_factor_tensors(model):
    """How many tensors of a GGUF file are factors of the rotation."""
    if not model.endswith(".gguf"):
        return 0
    with open(model, "rb") as f:
        head = f.read(1 << 20)
    return sum(head.count(name) for name in (b"rope_freqs.weight", b"rope_factors_long.weight", b"rope_factors_short.weight"))


def same(what, got, wanted):
    assert got == wanted, f"{what}\n  got      {got!r}\n  expected {wanted!r}"


# ---- one claim each ------------------------------------------------------------------------------------------------

def describe_agrees_with_itself(folder):
    expected = expected_of(folder)
    for model in files_of(folder):
        d = json.loads(hpctl("model", "describe", model, "-o", "json"))
        mlps = [x["class"] for x in d["layers"] if x["class"] in ("mlp", "moe")]
        same("layers", [x["class"] for x in d["layers"]], ["embed", *[x for i in range(d["blocks"]) for x in ("attn", mlps[i])], "head"])
        same("tensors", sum(t["count"] for t in d["tensors"].values()), d["tensor_count"])
        same("bytes by type", sum(t["bytes"] for t in d["tensors"].values()), d["weight_bytes"])
        assert d["weight_bytes"] <= d["bytes"] and "error" not in d["tokenizer"] and bool(d["chat_template"]) == ("chat" in expected), d
        learned = 0 if d["rope"]["dims"] else d["context"] * d["width"] * 4  # positions stand beside the tokens' rows
        tied = d["layers"][0]["param_bytes"] - learned if d["tied_embeddings"] else 0
        spare = d["rope"]["dims"] // 2 * 4 * rope_factor_tensors(model)  # read with the config
        same("bytes of layers", sum(x["param_bytes"] for x in d["layers"]), d["weight_bytes"] + tied - spare)
        assert d["architecture"] in hpctl("model", "describe", model).decode()


def text_becomes_the_same_ids_and_back(folder):
    expected = expected_of(folder)["tokenize"]
    texts = [t["text"] for t in expected]
    for model in files_of(folder):
        for t, full, plain in zip(expected, lines("tokenize", model, texts), lines("tokenize", model, texts, "--no-special")):
            same(f"{model}: {t['text']!r}", full.get("ids", full), t["ids"])
            same(f"{model}: {t['text']!r} without special", plain.get("ids", plain), t["ids_without_special"])
        for t, back in zip(expected, lines("detokenize", model, [t["ids_without_special"] for t in expected])):
            same(f"{model}: decoded {t['ids_without_special']}", back.get("text", back), t["decoded"])


def chat_becomes_the_same_text_and_ids(folder):
    expected = expected_of(folder).get("chat")
    if not expected:
        skip("it has no chat template")
    questions = [{"messages": c["messages"], "add_generation_prompt": c["add_generation_prompt"]} for c in expected]
    for model in files_of(folder):
        for c, got in zip(expected, lines("render", model, questions)):
            if "error" in c:
                assert c["error"] in got.get("error", ""), f"{model}: {got} does not say {c['error']!r}"
            else:
                same(f"{model}: {c['messages']}", (got.get("text", got), got.get("ids")), (c["text"], c["ids"]))


def logits_of(model, ids, *options):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "logits.npy")
        hpctl("model", "logits", model, "--ids", ",".join(map(str, ids)), "-o", path, *options)
        return np.load(path)


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def divergence(got, wanted):
    """Mean KL divergence of a row from the one that is wanted, in nats."""
    p, q = log_softmax(wanted.astype(np.float64)), log_softmax(got.astype(np.float64))
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())


def logits_within(folder, bound, *options, files=files_of, ways=((),), nats=None):
    """Every prompt in its share of `ways`, further options; `nats` bounds the mean divergence from what the file's own values give."""
    need_verb("logits")
    expected = expected_of(folder)
    for model in files(folder):
        rounded = expected.get("rounded_weights", {}).get(kind_of(model))
        names = rounded or [p["logits"] for p in expected["prompts"]]
        known = list(zip(expected["prompts"], names))  # of rounded weights not for every prompt
        losses = []
        for (p, name), way in ((one, way) for i, one in enumerate(known) for way in (ways[i::len(known)] if len(ways) > 1 else ways)):
            wanted, got = np.load(os.path.join(folder, name)), logits_of(model, p["ids"], *options, *way)
            same(f"{model}: shape", got.shape, wanted.shape)
            error = float(np.abs(got - wanted).max() / np.abs(wanted).max())
            losses.append(divergence(got, wanted))
            print(f"# {os.path.relpath(model, os.path.dirname(folder))} {name} {' '.join(map(str, way))}: {error:.1e} of the largest, {losses[-1]:.1e} nats")
            assert got.dtype == np.float32 and (bound is None or error <= bound), f"{model}: {name} {way}: {error:.2e} of the largest, {bound:.0e} is allowed"
        assert nats is None or np.mean(losses) <= nats, f"{model}: {np.mean(losses):.1e} nats on average, {nats:.0e} are allowed"


@contextlib.contextmanager
def every_matrix_as_a_large_one(least_values=1):
    """`auto` leaves small matrices in float32, and all of these models' are small."""
    os.environ["HP_TEST_LEAST_VALUES"] = str(least_values)
    try:
        yield
    finally:
        del os.environ["HP_TEST_LEAST_VALUES"]


def has_kernels(name):
    """Whether this CPU can run them."""
    run = subprocess.run([HPCTL, "model", "logits", os.path.join(MADE, "spm", "hf"), "--ids", "1", "-o", "/dev/null", "--kernels", name], capture_output=True)
    assert run.returncode == 0 or b"cannot run the" in run.stderr, run.stderr
    return run.returncode == 0


FAST_KERNELS = ([], ["--kernels", "avx2"])


def is_mixture(folder):
    return any(layer["class"] == "moe" for layer in json.loads(hpctl("model", "describe", files_of(folder)[0], "-o", "json"))["layers"])


# Each number of stages with each length of slices, shared out among a model's prompts.
CUTS = [("--stages", stages, "--slice", tokens) for stages, tokens in itertools.product((1, 2, 3, 5), (1, 7, 64))]


def logits_in_float32_are_the_known_ones(folder):
    logits_within(folder, 1e-4, "--compute", "f32")


def logits_over_stages_and_slices_are_the_known_ones(folder):
    logits_within(folder, 1e-4, "--compute", "f32", ways=CUTS)


def experts_in_groups_make_the_same_logits_to_the_bit(folder):
    """Cut wherever stages may end: within a block's experts, too."""
    ids = expected_of(folder)["prompts"][0]["ids"]
    for model, compute in itertools.product(files_of(folder)[:2], ("f32", "auto")):
        with every_matrix_as_a_large_one():
            whole = logits_of(model, ids, "--compute", compute, "--slice", 7)
            for groups, stages in ((2, 5), (64, 11)):
                got = logits_of(model, ids, "--compute", compute, "--expert-groups", groups, "--stages", stages, "--slice", 7)
                assert np.array_equal(got, whole), f"{model}: {groups} groups over {stages} stages, --compute {compute}: {np.abs(got - whole).max()} apart"


def logits_of_the_fast_path_are_close(folder):
    logits_within(folder, 0.03, nats=1e-3)


def logits_of_matrices_that_count_as_large_are_close(folder):
    """The models are so narrow (48 to 128) and random that roundings hardly cancel: more is allowed than real ones lose (tests/proc/real_model_test.py). What mixtures give may
    differ wholly where rounding chooses another expert: they are judged by divergence alone."""
    with every_matrix_as_a_large_one():
        for kernels in FAST_KERNELS:
            logits_within(folder, None if is_mixture(folder) else 0.08, *kernels, nats=1e-2)


def logits_of_the_plain_loops_are_the_known_ones(folder):
    logits_within(folder, 1e-4, "--compute", "f32", "--kernels", "plain")


def greedy_ids_are_the_known_ones(folder):
    need_verb("greedy")
    expected = expected_of(folder)
    for model in files_of(folder):
        kind = kind_of(model)
        rounded = expected.get("rounded_greedy_ids", {}).get(kind)
        if rounded is None and kind in expected.get("rounded_weights", {}):
            continue  # what follows from rounded weights is not known for this one
        for p, wanted in zip(expected["prompts"], rounded or [p["greedy_ids"] for p in expected["prompts"]]):
            out = hpctl("model", "greedy", model, "--ids", ",".join(map(str, p["ids"])), "--tokens", len(wanted), "--compute", "f32", "-o", "json")
            same(f"{model}: after {p['text']!r}", json.loads(out)["ids"], wanted)


TEXT_CLAIMS = [text_becomes_the_same_ids_and_back, chat_becomes_the_same_text_and_ids]
CLAIMS = [describe_agrees_with_itself, *TEXT_CLAIMS, logits_in_float32_are_the_known_ones,
          logits_over_stages_and_slices_are_the_known_ones, logits_of_the_fast_path_are_close, logits_of_matrices_that_count_as_large_are_close,
          logits_of_the_plain_loops_are_the_known_ones, greedy_ids_are_the_known_ones]


def add_claims(name, folder, claims):
    for claim in claims:
        def run(claim=claim):
            claim(folder)
        run.__name__ = f"{name}: {claim.__name__}"
        test(run)


# ---- the models ----------------------------------------------------------------------------------------------------

subprocess.run([sys.executable, os.path.join(ROOT, "tests", "models", "make_models.py"), MADE], check=True, stdout=subprocess.DEVNULL)


@test
def models_with_known_answers_are_made_small():
    assert sum(os.path.getsize(f) for f in glob.glob(os.path.join(MADE, "**"), recursive=True) if os.path.isfile(f)) <= 2 << 20


for made in ("spm", "bpe", "window"):
    add_claims(made, os.path.join(MADE, made), CLAIMS)
for family in FAMILIES:
    add_claims(family, os.path.join(GOLDEN, family), CLAIMS)
for family in MORE_FAMILIES:
    mixture = family in ("mixtral", "deepseek2") or "_moe" in family or "_oss" in family
    add_claims(family, os.path.join(MORE_GOLDEN, family), CLAIMS + [experts_in_groups_make_the_same_logits_to_the_bit] * mixture)


# ---- encoders ------------------------------------------------------------------------------------------------------

ENCODER = os.path.join(MORE_GOLDEN, "bert")


def embeddings_of(model, texts, *options):
    return [np.array(a["embedding"], np.float32) for a in lines("embed", model, texts, *options)]


def embeddings_within(models, bound, *options):
    need_verb("embed")
    prompts = expected_of(ENCODER)["prompts"]
    for model in models:
        for p, got in zip(prompts, embeddings_of(model, [p["text"] for p in prompts], *options)):
            wanted = np.load(os.path.join(ENCODER, p["embedding"]))
            same(f"{model}: shape", got.shape, wanted.shape)
            error = float(np.abs(got - wanted).max() / np.abs(wanted).max())
            assert error <= bound, f"{model} {' '.join(map(str, options))}: {p['text'][:40]!r}: {error:.2e} of the largest, {bound:.0e} is allowed"


def encoders_embed_as_they_should(folder):
    expected_of(folder)
    for stages in (1, 2, 3, 5):
        embeddings_within(files_of(folder), 1e-4, "--compute", "f32", "--stages", stages)
    for kernels in ("plain", "avx2"):
        embeddings_within(files_of(folder), 1e-4, "--compute", "f32", "--kernels", kernels)
    embeddings_within(files_of(folder), 0.03)


add_claims("bert", ENCODER, [text_becomes_the_same_ids_and_back, encoders_embed_as_they_should])


def read_safetensors(path):
    with open(path, "rb") as f:
        raw = f.read()
    n = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + n])
    head.pop("__metadata__", None)
    return {k: np.frombuffer(raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]], np.float32).reshape(v["shape"]) for k, v in head.items()}


def write_safetensors(path, tensors):
    head, at = {}, 0
    for k, v in tensors.items():
        head[k] = {"dtype": "F32", "shape": list(v.shape), "data_offsets": [at, at + v.nbytes]}
        at += v.nbytes
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(np.ascontiguousarray(v).tobytes() for v in tensors.values()))


def encoder_in_other_words(folder, rename, config, change=lambda t: t):
    """The known encoder with its tensors called otherwise, below `folder`."""
    shutil.copytree(os.path.join(ENCODER, "hf"), folder)
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    tensors = change(read_safetensors(os.path.join(ENCODER, "hf", "model.safetensors")))
    write_safetensors(os.path.join(folder, "model.safetensors"), {rename(k): v for k, v in tensors.items()})
    with open(os.path.join(folder, "config.json")) as f:
        changed = {**json.load(f), **config}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(changed, f)
    return folder


def distil(name):
    for old, new in (("encoder.layer.", "distilbert.transformer.layer."), ("embeddings.word", "distilbert.embeddings.word"), ("embeddings.position", "distilbert.embeddings.position"), ("embeddings.LayerNorm", "distilbert.embeddings.LayerNorm"), ("attention.self.query", "attention.q_lin"),
                     ("attention.self.key", "attention.k_lin"), ("attention.self.value", "attention.v_lin"), ("attention.output.dense", "attention.out_lin"),
                     ("attention.output.LayerNorm", "sa_layer_norm"), ("intermediate.dense", "ffn.lin1"), ("output.dense", "ffn.lin2"), ("output.LayerNorm", "output_layer_norm")):
        name = name.replace(old, new)
    return name


def without_types(tensors):
    """Every token has type 0: its row can as well stand in that of each position."""
    t = {k: v for k, v in tensors.items() if not k.startswith("pooler.")}
    t["embeddings.position_embeddings.weight"] = t["embeddings.position_embeddings.weight"] + t.pop("embeddings.token_type_embeddings.weight")[:1]
    return t


def later_positions(tensors):
    t = dict(tensors)
    t["embeddings.position_embeddings.weight"] = np.concatenate([np.full((2, 64), 99, np.float32), t["embeddings.position_embeddings.weight"]])
    return t


@test
def encoders_are_known_by_their_other_names():
    expected_of(ENCODER)
    with tempfile.TemporaryDirectory() as folder:
        embeddings_within([
            encoder_in_other_words(os.path.join(folder, "prefixed"), lambda k: "bert." + k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"), {}),
            encoder_in_other_words(os.path.join(folder, "roberta"), lambda k: "roberta." + k, {"model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 130}, later_positions),
            encoder_in_other_words(os.path.join(folder, "xlm"), lambda k: k, {"model_type": "xlm-roberta", "pad_token_id": 1, "max_position_embeddings": 130}, later_positions),
            encoder_in_other_words(os.path.join(folder, "distil"), distil, {"model_type": "distilbert", "dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 128, "activation": "gelu"}, without_types),
        ], 1e-4, "--compute", "f32")


@test
def pooling_is_what_the_folder_says():
    prompts = expected_of(ENCODER)["prompts"]
    p = prompts[0]
    hidden = np.load(os.path.join(ENCODER, p["hidden"]))
    with tempfile.TemporaryDirectory() as folder:
        for mode, wanted in (("cls_token", hidden[0]), ("lasttoken", hidden[-1])):
            model = encoder_in_other_words(os.path.join(folder, mode), lambda k: k, {})
            with open(os.path.join(model, "1_Pooling", "config.json"), "w") as f:
                json.dump({f"pooling_mode_{mode}": True}, f)
            with open(os.path.join(model, "modules.json"), "w") as f:
                json.dump([{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Pooling"}], f)
            got, = embeddings_of(model, [p["text"]], "--compute", "f32")
            assert np.abs(got - wanted).max() <= 1e-4 * np.abs(wanted).max(), mode
        with open(os.path.join(model, "1_Pooling", "config.json"), "w") as f:
            json.dump({"pooling_mode_max_tokens": True}, f)
        run = subprocess.run([HPCTL, "model", "embed", model, "x"], capture_output=True)
        assert run.returncode != 0 and b"1_Pooling/config.json" in run.stderr and b"known are mean" in run.stderr, run.stderr


def decoder_that_pools(folder, mode, *more):
    """A text model's folder as one of embeddings: its tensors without "model." and without a head, and how rows are pooled."""
    model = os.path.join(GOLDEN, "qwen3", "hf")
    shutil.copytree(model, folder)
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    tensors = read_safetensors(os.path.join(model, "model.safetensors"))
    write_safetensors(os.path.join(folder, "model.safetensors"), {k.removeprefix("model."): v for k, v in tensors.items() if k != "lm_head.weight"})
    os.mkdir(os.path.join(folder, "1_Pooling"))
    with open(os.path.join(folder, "1_Pooling", "config.json"), "w") as f:
        json.dump({f"pooling_mode_{mode}": True}, f)
    with open(os.path.join(folder, "modules.json"), "w") as f:
        json.dump([{"type": "sentence_transformers.models." + name} for name in ("Transformer", "Pooling", *more)], f)
    return folder, tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])


@test
def decoders_pool_what_their_folder_says():
    """The rows are those of which the known logits are made."""
    need_verb("embed")
    with open(os.path.join(GOLDEN, "qwen3", "expected.json")) as f:
        prompt = json.load(f)["prompts"][0]
    logits = np.load(os.path.join(GOLDEN, "qwen3", prompt["logits"]))
    with tempfile.TemporaryDirectory() as folder:
        for mode, pool in (("lasttoken", lambda x: x[-1]), ("mean_tokens", lambda x: x.mean(axis=0))):
            model, head = decoder_that_pools(os.path.join(folder, mode), mode)
            gguf = os.path.join(folder, mode + ".gguf")
            subprocess.run([HPCTL, "model", "convert", model, gguf, "--type", "f32"], check=True, capture_output=True)
            for path, options in ((model, ()), (model, ("--stages", 3)), (gguf, ())):
                got, = embeddings_of(path, [prompt["text"]], "--compute", "f32", *options)
                error = np.abs(got @ head.T - pool(logits)).max() / np.abs(logits).max()
                assert error <= 1e-4, f"{path} {mode} {options}: {error:.2e}"
        model, _ = decoder_that_pools(os.path.join(folder, "long"), "lasttoken", "Normalize")
        got, = embeddings_of(model, [prompt["text"]], "--compute", "f32")
        assert abs(np.linalg.norm(got) - 1) < 1e-5
        for model, verb, words in ((model, ("greedy", "--ids", "1,2", "--tokens", "2"), b"gives no logits"), (decoder_that_pools(os.path.join(folder, "dense"), "lasttoken", "Dense")[0], ("embed", "x"), b"modules.json")):
            run = subprocess.run([HPCTL, "model", verb[0], model, *verb[1:]], capture_output=True)
            assert run.returncode != 0 and words in run.stderr, (verb, run.stderr)


@test
def encoders_refuse_what_they_cannot_do():
    expected_of(ENCODER)
    for verb, model, options, words in (("logits", ENCODER + "/hf", ("--ids", "1,2", "-o", "x.npy"), b"model embed"), ("greedy", ENCODER + "/hf", ("--ids", "1,2", "--tokens", "2"), b"gives no logits"),
                                        ("embed", os.path.join(MADE, "spm", "hf"), ("x",), b"is no encoder"), ("embed", ENCODER + "/hf", ("x " * 200,), b"reads 1 to 128 at once")):
        run = subprocess.run([HPCTL, "model", verb, model, *options], capture_output=True)
        assert run.returncode != 0 and words in run.stderr, (verb, model, run.stderr)


QUANTISED = os.path.join(GOLDEN, "quantised")


def quantised_files(folder):
    return [f for f in sorted(glob.glob(os.path.join(folder, "model-*.gguf"))) if kind_of(f) != "f32"]


def quantised_logits_within(bound, *options, **limits):
    files = quantised_files(QUANTISED)
    if not files:
        skip("the quantised models are not there (HP_GOLDEN points at models with known answers)")
    same("kinds", [kind_of(f) for f in files], sorted(expected_of(QUANTISED)["rounded_weights"]))
    logits_within(QUANTISED, bound, *options, files=quantised_files, **limits)


@test
def logits_of_quantised_weights_are_those_of_their_values():
    quantised_logits_within(1e-4, "--compute", "f32")


@test
def logits_of_quantised_weights_over_stages_and_slices_are_those_of_their_values():
    quantised_logits_within(1e-4, "--compute", "f32", ways=CUTS)


@test
def logits_of_quantised_weights_by_plain_loops_and_avx2_are_those_of_their_values():
    for kernels in ("plain", "avx2"):
        quantised_logits_within(1e-4, "--compute", "f32", "--kernels", kernels)


@test
def logits_of_quantised_weights_on_the_fast_path_are_close():
    with every_matrix_as_a_large_one():
        for options in ([], ["--stages", "3", "--slice", "7"], *(["--kernels", k] for k in ("avx512", "avx_vnni", "avx2") if has_kernels(k))):
            quantised_logits_within(0.03, *options, nats=1e-3)


@test
def a_scale_that_is_no_number_is_refused_with_file_tensor_and_block():
    expected_of(QUANTISED)
    for kind in ("q4_k_m", "q8_0"):
        with open(os.path.join(QUANTISED, f"model-{kind}.gguf"), "rb") as f:
            raw = bytearray(f.read())
        run = subprocess.run([HPCTL, "model", "describe", os.path.join(QUANTISED, f"model-{kind}.gguf"), "-o", "json"], capture_output=True)
        assert run.returncode == 0, run.stderr
        number, size = {"q4_k_m": (12, 144), "q8_0": (8, 34)}[kind]
        name = b"blk.1.ffn_gate.weight"
        at = raw.find(len(name).to_bytes(8, "little") + name) + 8 + len(name) + 4 + 16
        same("format", int.from_bytes(raw[at:at + 4], "little"), number)
        offset = int.from_bytes(raw[at + 4:at + 12], "little") + data_offset_of(raw)
        raw[offset + 3 * size:offset + 3 * size + 2] = b"\x00\x7e"
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "spoiled.gguf")
            with open(path, "wb") as f:
                f.write(raw)
            for options in ([], ["--compute", "f32"], ["--kernels", "plain"]):
                run = subprocess.run([HPCTL, "model", "greedy", path, "--ids", "1", "--tokens", "1", *options], capture_output=True)
                said = run.stderr.decode()
                assert run.returncode == 1 and path in said and "blk.1.ffn_gate.weight: block 3 " in said and "no number" in said, said


@test
def experts_are_chosen_in_float32_however_many_there_are():
    folder = os.path.join(MORE_GOLDEN, "mixtral")
    ids, made = expected_of(folder)["prompts"][3]["ids"], []
    for least_values in (1, 512):  # a router has 192 values, other matrices have 1152 and more
        with every_matrix_as_a_large_one(least_values):
            made.append(logits_of(os.path.join(folder, "model-f32.gguf"), ids))
    assert np.array_equal(*made)


@test
def a_gpt2_whose_names_lack_their_prefix_is_the_same_model():
    folder = os.path.join(GOLDEN, "gpt2")
    prompt = expected_of(folder)["prompts"][0]
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(os.path.join(folder, "hf"), copy, dirs_exist_ok=True)
        path = os.path.join(copy, "model.safetensors")
        os.chmod(path, 0o644)
        with open(path, "rb") as f:
            raw = f.read()
        size = int.from_bytes(raw[:8], "little")
        header = raw[8:8 + size].replace(b'"transformer.', b'"').ljust(size)
        with open(path, "wb") as f:
            f.write(raw[:8] + header + raw[8 + size:])
        assert np.array_equal(logits_of(copy, prompt["ids"]), logits_of(os.path.join(folder, "hf"), prompt["ids"]))


def gguf_pieces(raw):
    """(number of keys, their bytes, tensors as (name, information without its offset, bytes)) of a GGUF file without padding of its own."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def number(at, width=8):
        return int.from_bytes(raw[at:at + width], "little")

    def value_end(at, kind):
        if kind == 8:
            return at + 8 + number(at)
        if kind != 9:
            return at + sizes[kind]
        inner, n, at = number(at, 4), number(at + 4), at + 12
        for _ in range(n):
            at = value_end(at, inner)
        return at

    n_tensors, n_keys, at = number(8), number(16), 24
    for _ in range(n_keys):
        at += 8 + number(at)
        at = value_end(at + 4, number(at, 4))
    keys, infos = raw[24:at], []
    for _ in range(n_tensors):
        begin = at
        at += 8 + number(at)
        at += 4 + 8 * number(at, 4) + 4
        infos.append((raw[begin:at], number(at)))
        at += 8
    data = (at + 31) // 32 * 32
    ends = sorted([offset for _, offset in infos] + [len(raw) - data])
    return n_keys, keys, [(info, raw[data + o:data + ends[ends.index(o) + 1]]) for info, o in infos]


def gguf_file(n_keys, keys, tensors, split):
    """A part of a model: `split` adds its keys."""
    for name, value in split.items():
        keys += len(name).to_bytes(8, "little") + name.encode() + (4).to_bytes(4, "little") + value.to_bytes(4, "little")
    infos, data = b"", b""
    for info, content in tensors:
        infos += info + len(data).to_bytes(8, "little")
        data += content + bytes(-len(content) % 32)
    head = b"GGUF" + (3).to_bytes(4, "little") + len(tensors).to_bytes(8, "little") + (n_keys + len(split)).to_bytes(8, "little") + keys + infos
    return head + bytes(-len(head) % 32) + data


@test
def a_model_in_parts_is_the_same_model_and_a_part_that_is_missing_is_named():
    source = os.path.join(MADE, "bpe", "model-q8_0.gguf")
    with open(source, "rb") as f:
        n_keys, keys, tensors = gguf_pieces(f.read())
    shares = [[], tensors[:len(tensors) // 2], tensors[len(tensors) // 2:]]
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"m-{i + 1:05d}-of-00003.gguf") for i in range(3)]

        def write(i, number, total):
            with open(paths[i], "wb") as f:
                f.write(gguf_file(n_keys if i == 0 else 0, keys if i == 0 else b"", shares[i],
                                  {"split.no": number, "split.count": 3, "split.tensors.count": total}))
        for i in range(3):
            write(i, i, len(tensors))
        assert np.array_equal(logits_of(paths[0], [1, 5, 9]), logits_of(source, [1, 5, 9]))
        same("tokens", lines("tokenize", paths[0], ["Hello there"]), lines("tokenize", source, ["Hello there"]))
        exit_code, error = refusal(paths[1])
        assert exit_code == 1 and "not the first" in error["message"] and "-00001-of-00003.gguf" in json.dumps(error), error
        write(2, 1, len(tensors))
        assert "m-00003-of-00003.gguf: says that it is part 2 of 3" in refusal(paths[0])[1]["message"]
        write(2, 2, len(tensors))
        write(0, 0, len(tensors) + 1)
        assert "one is of another model" in refusal(paths[0])[1]["message"]
        shares[2] = shares[1][:len(shares[2])] + shares[2][len(shares[1]):]
        write(0, 0, len(tensors))
        write(2, 2, len(tensors))
        error = refusal(paths[0])[1]
        assert "is there twice" in error["message"] and "of another model" in error["hint"], error
        write(0, 0, len(tensors))
        os.remove(paths[2])
        exit_code, error = refusal(paths[0])
        assert exit_code == 4 and "m-00003-of-00003.gguf" in error["message"] and "part 3 of 3" in json.dumps(error), error


@test
def a_file_with_a_vocabulary_and_no_weights_can_be_tokenized():
    source = os.path.join(MADE, "bpe", "model-q8_0.gguf")
    with open(source, "rb") as f:
        n_keys, keys, _ = gguf_pieces(f.read())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vocabulary.gguf")
        with open(path, "wb") as f:
            f.write(gguf_file(n_keys, keys, [], {}))
        same("tokens", lines("tokenize", path, ["Hello there"]), lines("tokenize", source, ["Hello there"]))
        run = subprocess.run([HPCTL, "model", "greedy", path, "--ids", "1", "--tokens", "1"], capture_output=True)
        assert run.returncode == 1 and b"vocabulary.gguf" in run.stderr, run.stderr


@test
def positions_beyond_a_learned_table_are_refused():
    expected_of(os.path.join(GOLDEN, "gpt2"))
    ids = ",".join(["5"] * 257)
    run = subprocess.run([HPCTL, "model", "logits", os.path.join(GOLDEN, "gpt2", "hf"), "--ids", ids, "-o", "/dev/null"], capture_output=True)
    assert run.returncode == 1 and b"context of 256" in run.stderr, run.stderr


@test
def lines_that_cannot_be_done_are_answered_in_their_place():
    model = os.path.join(MADE, "spm", "hf")
    got = hpctl("model", "tokenize", model, "--jsonl", stdin=b'"a"\n[1]\nnonsense\n\n"b"').decode().splitlines()
    same("kinds", ["error" in json.loads(x) for x in got], [False, True, True, True, False])
    same("ids", ["error" in x for x in lines("detokenize", model, [[1, 2], [-1], ["a"], [1.5], {}, [10 ** 9]])], [False, True, True, True, True, False])
    same("messages", ["error" in x for x in lines("render", model, ["text", {}, {"messages": [], "add_generation_prompt": 1}])], [True] * 3)


@test
def text_comes_from_an_option_a_file_or_standard_input():
    model, raw = os.path.join(MADE, "spm", "model-f16.gguf"), "café \n".encode()
    wanted = json.loads(hpctl("model", "tokenize", model, "--text", raw.decode(), "-o", "json"))
    same("standard input", json.loads(hpctl("model", "tokenize", model, "--file", "-", "-o", "json", stdin=raw)), wanted)
    with tempfile.NamedTemporaryFile() as f:
        f.write(raw)
        f.flush()
        same("file", json.loads(hpctl("model", "tokenize", model, "--file", f.name, "-o", "json")), wanted)
    plain = hpctl("model", "tokenize", model, "--text", raw.decode()).decode().strip()
    same("plain", [int(x) for x in plain.split(",")], wanted["ids"])
    same("back", json.loads(hpctl("model", "detokenize", model, "--ids", plain, "-o", "json"))["text"], "<s> " + raw.decode())
    assert subprocess.run([HPCTL, "model", "tokenize", model], capture_output=True).returncode == 2


def refusal(model):
    """(exit code, error object) of `model describe`."""
    run = subprocess.run([HPCTL, "model", "describe", model, "-o", "json"], capture_output=True)
    return run.returncode, json.loads(run.stdout)["error"]


@test
def spoiled_files_are_refused_with_file_tensor_and_problem():
    with open(os.path.join(MADE, "bpe", "model-q8_0.gguf"), "rb") as f:
        whole = f.read()
    cases = [(whole[:-4000], "malformed", "reach beyond the end of the file"),
             (whole.replace(b"blk.1.attn_q.weight", b"blk.7.attn_q.weight"), "malformed", "tensor blk.1.attn_q.weight is missing"),
             (whole.replace(b"llama", b"klaxo"), "unsupported", 'architecture "klaxo"'), (b"", "malformed", "empty"),
             (whole[:200], "malformed", "header"), (b"GGUF" + bytes(20), "unsupported", "version")]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "spoiled.gguf")
        for raw, code, says in cases:
            with open(path, "wb") as f:
                f.write(raw)
            exit_code, error = refusal(path)
            assert exit_code == 1 and error["code"] == code and path in error["message"] and says in error["message"], (says, exit_code, error)
        exit_code, error = refusal(os.path.join(folder, "nothing"))
        same("missing file", (exit_code, error["code"]), (4, "not_found"))


def data_offset_of(raw):
    """Of a GGUF file whose alignment is 32: its last tensor's entry ends the header."""
    n = int.from_bytes(raw[8:16], "little")
    with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
        f.write(raw)
        f.flush()
        d = json.loads(hpctl("model", "describe", f.name, "-o", "json"))
    same("tensors", d["tensor_count"], n)
    end = max(m.end() for m in re.finditer(rb"(?:blk\.\d+\.[a-z_]+|output|output_norm|token_embd)\.weight", bytes(raw[:400000])))
    n_dims = int.from_bytes(raw[end:end + 4], "little")
    return (end + 4 + 8 * n_dims + 12 + 31) // 32 * 32


def in_another_format(raw, old, new):
    """A GGUF file whose matrices say that their number format is another one (of GGUF's numbers)."""
    raw = bytearray(raw)
    for name in sorted(set(re.findall(rb"[a-z0-9_.]+\.weight", bytes(raw)))):
        at = raw.find(len(name).to_bytes(8, "little") + name) + 8 + len(name)
        at += 4 + 8 * int.from_bytes(raw[at:at + 4], "little")
        if int.from_bytes(raw[at:at + 4], "little") == old:
            raw[at:at + 4] = new.to_bytes(4, "little")
    return bytes(raw)


@test
def describe_tokenize_and_render_need_no_number_format():
    model = os.path.join(MADE, "bpe", "model-q8_0.gguf")
    with open(model, "rb") as f:
        whole = f.read()
    d = json.loads(hpctl("model", "describe", model, "-o", "json"))
    chat = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "other.gguf")
        for number, name in ((31, "Q4_0_4_4"), (4000, "unknown")):
            with open(path, "wb") as f:
                f.write(in_another_format(whole, 8, number))
            got = json.loads(hpctl("model", "describe", path, "-o", "json"))
            assert got["tensors"][name]["count"] == d["tensors"]["Q8_0"]["count"] and "Q8_0" not in got["tensors"], got["tensors"]
            same("parameters", got["parameters"], d["parameters"])
            assert got["tensors"][name]["bytes"] <= got["weight_bytes"] <= got["bytes"]
            assert name in hpctl("model", "describe", path).decode()
            same("tokens", lines("tokenize", path, ["Hello there"]), lines("tokenize", model, ["Hello there"]))
            same("chat", lines("render", path, [chat]), lines("render", model, [chat]))
            run = subprocess.run([HPCTL, "model", "greedy", path, "--ids", "1", "--tokens", "1"], capture_output=True)
            assert run.returncode == 1 and f"number format {name} (GGUF type {number}); known are".encode() in run.stderr, run.stderr


@test
def demo_model_gives_its_known_answers():
    folders = [os.path.join(ROOT, "examples", "demo-model"), os.path.join(SHARED, "demo")]
    folder = next((f for f in folders if os.path.exists(os.path.join(f, "answers.json"))), None)
    if not folder:
        skip("the demo model's answers are not there")
    need_verb("greedy")
    model = os.path.join(folder, "demo-q8_0.gguf")
    with open(os.path.join(folder, "answers.json")) as f:
        answers = json.load(f)[:6]
    chats = [{"messages": [{"role": "user", "content": q}], "add_generation_prompt": True} for q, _ in answers]
    hub = os.path.join(folder, "hf")
    if os.path.exists(hub):
        same("the folder's prompts", lines("render", hub, chats), lines("render", model, chats))
    for (question, answer), prompt in zip(answers, lines("render", model, chats)):
        wanted = lines("tokenize", model, [answer], "--no-special")[0]["ids"]
        out = hpctl("model", "greedy", model, "--ids", ",".join(map(str, prompt["ids"])), "--tokens", len(wanted), "--compute", "f32", "-o", "json")
        same(question, json.loads(out)["text"], answer)


main()
