"""Two small tokenizers trained on the text below, with a plain encoder and decoder each, and how either kind of file spells them."""
import re

from formats import BOOL, F32, I32, STRING, U32

CORPUS = """The pipeline has three stages, and each stage holds some of the layers. A prompt is cut into slices; while one slice runs on the
second stage, the next runs on the first. The planner cuts the layers so that all stages take equally long. It's the last stage that samples
a token, and the token goes back to the first stage for the next step. What is a slice? A slice is a run of tokens of one prompt. What is a
stage? A stage is a run of layers on one device. The first device has 16 cores, the second has 8, and the third one has 4. They'll all be busy.
"""


def merges_train(words, count):
    """The most frequent pair first; ties by text, so that every run gives the same."""
    words, merges = [list(w) for w in words], []
    while len(merges) < count:
        pairs = {}
        for w in words:
            for pair in zip(w, w[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        words = [merge_once(w, best) for w in words]
    return merges


def merge_once(word, pair):
    out = []
    for piece in word:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return out


def merge_all(word, ranks):
    """Lowest rank first, leftmost first."""
    word = list(word)
    while True:
        pairs = [(ranks[p], i) for i, p in enumerate(zip(word, word[1:])) if p in ranks]
        if not pairs:
            return word
        _, i = min(pairs)
        word[i:i + 2] = [word[i] + word[i + 1]]


def split_special(text, specials):
    pattern = "(" + "|".join(re.escape(s) for s in sorted(specials, key=len, reverse=True)) + ")"
    return [part for part in re.split(pattern, text) if part]


# ---- byte-level BPE ------------------------------------------------------------------------------------------------

def byte_alphabet():
    """Every byte as a printable character, as GPT-2 began it."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


L = r"[^\W\d_]"  # \p{L} for the texts that are used here
LLAMA3 = re.compile(rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:[^\r\n\w]|_)?{L}+|\d{{1,3}}| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+")


class ByteBpe:
    kind = "bpe"
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|start|>", "<|end|>", "<|eot_id|>"]
    bos, eos = "<|begin_of_text|>", "<|eot_id|>"

    def __init__(self, merges):
        self.alphabet = byte_alphabet()
        self.back = {c: b for b, c in self.alphabet.items()}
        self.merges = merges_train([self._letters(w) for w in LLAMA3.findall(CORPUS)], merges)
        self.ranks = {p: i for i, p in enumerate(self.merges)}
        self.tokens = [*sorted(self.back), *dict.fromkeys(a + b for a, b in self.merges), *self.specials]
        self.ids = {t: i for i, t in enumerate(self.tokens)}

    def _letters(self, text):
        return "".join(self.alphabet[b] for b in text.encode())

    def encode(self, text, add_special=True):
        out = [self.ids[self.bos]] if add_special else []
        for part in split_special(text, self.specials):
            if part in self.specials:
                out.append(self.ids[part])
            else:
                for word in LLAMA3.findall(part):
                    out += [self.ids[p] for p in merge_all(self._letters(word), self.ranks)]
        return out

    def decode(self, ids):
        raw = b"".join(self.tokens[i].encode() if self.tokens[i] in self.specials else bytes(self.back[c] for c in self.tokens[i]) for i in ids)
        return raw.decode(errors="replace")

    def gguf_keys(self):
        kinds = [3 if t in self.specials else 1 for t in self.tokens]
        return [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "llama-bpe"),
                ("tokenizer.ggml.tokens", STRING, self.tokens), ("tokenizer.ggml.token_type", I32, kinds),
                ("tokenizer.ggml.merges", STRING, [f"{a} {b}" for a, b in self.merges]),
                ("tokenizer.ggml.bos_token_id", U32, self.ids[self.bos]), ("tokenizer.ggml.eos_token_id", U32, self.ids[self.eos]),
                ("tokenizer.ggml.add_bos_token", BOOL, True)]

    def hub_json(self):
        vocabulary = {t: i for t, i in self.ids.items() if t not in self.specials}
        single = [{"SpecialToken": {"id": self.bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        return {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens(self), "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": LLAMA3_PATTERN}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
            "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single,
                               "special_tokens": {self.bos: {"id": self.bos, "ids": [self.ids[self.bos]], "tokens": [self.bos]}}},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary,
                      "merges": [f"{a} {b}" for a, b in self.merges]}}


# ---- SentencePiece-style BPE with byte fallback --------------------------------------------------------------------

class SentencePiece:
    kind = "sentencepiece"
    specials = ["<unk>", "<s>", "</s>"]
    bos, eos = "<s>", "</s>"

    def __init__(self, merges):
        words = ["▁" + w for w in CORPUS.split()]
        pieces = list(dict.fromkeys(a + b for a, b in merges_train(words, merges)))
        letters = sorted(set("".join(words)))
        byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
        self.tokens = [*self.specials, *byte_tokens, *pieces, *letters]
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        # A piece may be made of any two pieces that spell it; its own rank counts.
        self.ranks = {(p[:i], p[i:]): rank for rank, p in enumerate(pieces) for i in range(1, len(p))
                      if p[:i] in self.ids and p[i:] in self.ids}
        self.merges = list(self.ranks)

    def encode(self, text, add_special=True):
        out = [self.ids[self.bos]] if add_special else []
        for part in split_special(text, self.specials):
            if part in self.specials:
                out.append(self.ids[part])
                continue
            for piece in merge_all("▁" + part.replace(" ", "▁"), self.ranks):
                out += [self.ids[piece]] if piece in self.ids else [3 + b for b in piece.encode()]
        return out

    def decode(self, ids):
        raw = b"".join(bytes([i - 3]) if 3 <= i < 259 else self.tokens[i].replace("▁", " ").encode() for i in ids)
        text = raw.decode(errors="replace")
        return text[1:] if text.startswith(" ") else text

    def gguf_keys(self):
        kinds = [2 if t == "<unk>" else 3 if t in self.specials else 6 if 3 <= i < 259 else 1 for i, t in enumerate(self.tokens)]
        scores = [0.0 if i < 259 else float(259 - i) for i in range(len(self.tokens))]
        return [("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.pre", STRING, "default"),
                ("tokenizer.ggml.tokens", STRING, self.tokens), ("tokenizer.ggml.scores", F32, scores),
                ("tokenizer.ggml.token_type", I32, kinds), ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2),
                ("tokenizer.ggml.unknown_token_id", U32, 0), ("tokenizer.ggml.add_bos_token", BOOL, True),
                ("tokenizer.ggml.add_eos_token", BOOL, False)]

    def hub_json(self):
        single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        return {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens(self),
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                               {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            "pre_tokenizer": None,
            "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single,
                               "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": self.ids,
                      "merges": [[a, b] for a, b in self.merges]}}


def added_tokens(t):
    return [{"id": t.ids[s], "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for s in t.specials]
