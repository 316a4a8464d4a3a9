"""The LLaMA family in numpy, float64: slow, plain, and the source of the known answers. Weights have the names and row order of Hugging Face files."""
import numpy as np


def rope_inverse_frequencies(c):
    i = np.arange(0, c["head_dim"], 2, dtype=np.float64)
    inverse = c["rope_theta"] ** (-i / c["head_dim"])
    return inverse / rope_factors(c)


def rope_factors(c):
    """What LLaMA 3's scaling divides each inverse frequency by; 1 without it."""
    i = np.arange(0, c["head_dim"], 2, dtype=np.float64)
    s = c.get("rope_llama3")
    if not s:
        return np.ones_like(i)
    turns = s["original_max_position_embeddings"] * c["rope_theta"] ** (-i / c["head_dim"]) / (2 * np.pi)
    kept = (turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
    blended = 1 / ((1 - kept) / s["factor"] + kept)
    return np.where(kept >= 1, 1.0, np.where(kept <= 0, s["factor"], blended))


def rms_norm(x, w, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * w


def rotate(x, angles):
    """x: [tokens, heads, head_dim]; element i pairs with i + head_dim / 2."""
    half = x.shape[-1] // 2
    a, b, cos, sin = x[..., :half], x[..., half:], np.cos(angles)[:, None], np.sin(angles)[:, None]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(q, k, v, window=0):
    """[tokens, heads, head_dim] each, k and v with fewer heads; causal, and of the last `window` tokens alone (0: of all)."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
    seen = np.tril(np.ones(scores.shape[1:], bool))
    if window:
        seen &= ~np.tril(seen, -window)
    scores = np.where(seen, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v)


def logits(c, weights, ids):
    """Logits [tokens, vocabulary] of every position."""
    w = {n: a.astype(np.float64) for n, a in weights.items()}
    x = w["model.embed_tokens.weight"][ids]
    n, hd = len(ids), c["head_dim"]
    angles = np.outer(np.arange(n) / c.get("rope_linear", 1.0), rope_inverse_frequencies(c))
    for block in range(c["blocks"]):
        def of(name):
            return w[f"model.layers.{block}.{name}.weight"]

        def times(y, name):
            return y @ of(name).T + w.get(f"model.layers.{block}.{name}.bias", 0)

        h = rms_norm(x, of("input_layernorm"), c["epsilon"])
        q = times(h, "self_attn.q_proj").reshape(n, c["heads"], hd)
        k = times(h, "self_attn.k_proj").reshape(n, c["kv_heads"], hd)
        v = times(h, "self_attn.v_proj").reshape(n, c["kv_heads"], hd)
        window = c.get("window", 0) if block >= c.get("window_from", 0) else 0
        mixed = attention(rotate(q, angles), rotate(k, angles), v, window)
        x = x + times(mixed.reshape(n, -1), "self_attn.o_proj")
        h = rms_norm(x, of("post_attention_layernorm"), c["epsilon"])
        gate = times(h, "mlp.gate_proj")
        x = x + times(gate / (1 + np.exp(-gate)) * times(h, "mlp.up_proj"), "mlp.down_proj")
    head = w["model.embed_tokens.weight" if c["tied"] else "lm_head.weight"]
    return rms_norm(x, w["model.norm.weight"], c["epsilon"]) @ head.T


def greedy(c, weights, ids, count):
    """(ids that follow, smallest gap between first and second logit relative to the largest)."""
    made, gap = list(ids), np.inf
    for _ in range(count):
        last = logits(c, weights, made)[-1]
        first, second = np.sort(last)[-1], np.sort(last)[-2]
        gap = min(gap, (first - second) / np.abs(last).max())
        made.append(int(last.argmax()))
    return made[len(ids):], float(gap)
