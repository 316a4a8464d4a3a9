"""Writes patterns.json: words into which the library `tokenizers` cuts texts by patterns. `pip install tokenizers`, then run it from anywhere."""
import json
import os
import random

from tokenizers import Regex, pre_tokenizers

PATTERNS = [
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[\p{L}&&[^\p{Han}]]+", r"[\p{L}&&\p{Lu}]", r"[^\p{L}&&[^\p{Han}]]", r"[a-z[0-9]]+", r"[^a-z[0-9]]", r"[a-z&&[^aeiou]&&[^x-z]]+",
    r"\w+", r"\W+", r"\b\w", r"\B.", r"\b", r"[\W_]+", r"[^\W_]+", r"[^\S\n]+", r"[\S&&[^a]]+", r"\p{Han}+", r"\P{Han}+", r"[^\p{Han}\s]+",
    r"\p{Hiragana}|\p{Katakana}", r"\h+", r"[\h_]+", r"[[:alpha:]]+", r"[\w-]+", r"[^\w]+", r"[[:alnum:]_]+", r"[^[:space:]]+", r"[]a]+", r"[^]a]+", r"\d+", r"\s+$", r"^\w",
    r"(?i:[a-c&&[^b]])+", r"[\p{P}\p{S}]+", r"[\p{L}\p{M}]+", r"(?<=\w)\s", r"(?<![\p{L}&&[^x]])1",
]
ALPHABET = list("abcxyzABC0189_ \n\t'-.,!]^&[é") + ["\u00b2", "\u00bd", "\u24b6", "\U0001f130", "\u3001", "\u3042", "\u30a2", "\u30fb", "\u4e2d", "\u6587", "\u0301",
                                                 "\u2167", "\u203f", "\u00a0", "\u0660", "\U0001f600", "\u01c5", "\u0416", "ß",
                                                 # newer than Unicode 14: an emoji, Han, a capital, a letter, a digit, a mark
                                                 "\U0001fae8", "\U00031350", "\u1c89", "\U0001e4d0", "\U0001e4f0", "\u0897"]


def main():
    random.seed(7)
    cases = []
    for pattern in PATTERNS:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        for i in range(12):
            text = "".join(random.choice(ALPHABET) for _ in range(random.randint(1, 24)))
            cases.append({"pattern": pattern, "text": text, "words": [w for w, _ in split.pre_tokenize_str(text)]})
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "patterns.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")


main()
