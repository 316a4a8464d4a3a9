"""Writes names.json: into which words Hugging Face's `tokenizers` cuts texts, where a model's tokenizer.json has the pre-tokenizer whose name a GGUF file gives.

    pip install tokenizers==0.23.* && python3 make_names.py

Nobody needs it to run the tests."""
import json
import os

from tokenizers import Regex, pre_tokenizers as p

BYTES = p.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = p.ByteLevel(add_prefix_space=False, use_regex=True)
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def modern(digits):
    return SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BLANKS


def cased(tail, han=""):
    upper, lower = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}" + han, r"\p{Ll}\p{Lm}\p{Lo}\p{M}" + han
    return rf"[^\r\n\p{{L}}\p{{N}}]?[{upper}]*[{lower}]+{tail}|[^\r\n\p{{L}}\p{{N}}]?[{upper}]+[{lower}]*{tail}"


def split(*patterns):
    return [p.Split(Regex(x), "isolated") for x in patterns] + [BYTES]


BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
NAMES = {
    "llama-bpe": split(modern(r"\p{N}{1,3}")), "glm4": split(modern(r"\p{N}{1,3}")), "stablelm2": split(modern(r"\p{N}")), "qwen2": split(modern(r"\p{N}")),
    "qwen35": split(SHORT + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + BLANKS),
    "gpt-2": [GPT2], "jais": [GPT2], "starcoder": [p.Digits(individual_digits=True), GPT2], "codeshell": [p.Digits(individual_digits=True), GPT2],
    "gpt-4o": split(cased(SHORT + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + BLANKS),
    "tekken": split(cased("") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + BLANKS),
    "falcon": [p.Punctuation("contiguous"), GPT2, p.Digits(individual_digits=False), p.Split(Regex("[0-9][0-9][0-9]"), "isolated")],
    "bloom": split(BLOOM.replace("[.", ".").replace("،])]", "،)]")), "viking": split(BLOOM.replace("[.", ".").replace("،])]", "،)]"), r"\p{N}"),
    "exaone-moe": split(SHORT + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"),
    "bailingmoe": split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"),
    "seed-coder": split(SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + BLANKS),
    "kimi-k2": split(r"[\p{Han}]+|" + cased(SHORT + "?", r"&&[^\p{Han}]") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BLANKS),
    "tiny_aya": split(r"\d{1,3}(?=(?:\d{3})*\b)", cased(SHORT + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + BLANKS),
    "minicpm5": split(r"\p{N}{1,3}", modern(r"\p{N}+")), "superbpe": split(r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
    "deepseek-v3": split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                         r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|""" + BLANKS),
    "chameleon": split("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )")[:-1]
                 + [p.Digits(individual_digits=True), p.Punctuation("isolated"), GPT2],
}
TEXTS = ["Hello  world, I'LL pay 12345$!\n\n x", "camelCase ABCdef don't  WON'T\r\n \n", "x=1234567; y/* 12 */\n\tfoo_bar(  a,b)...", "naïve 東京タワー 3月 한국어 漢字kanji", "क्षत्रिय ٣٤٥ ½²³ ⅷ",
         "🙂🙂 a🙂b — “quoted”…。 مرحبا، كيف؟", "IMGIMGABZ <sentinel:12> tab\tend    four  two", " lead and trail  ", "1 12 123 1234 12345 123456 1234567"]


def main():
    cases = []
    for name, steps in NAMES.items():
        cut = p.Sequence(steps)
        cases.append({"name": name, "cases": [[t, [w for w, _ in cut.pre_tokenize_str(t)]] for t in TEXTS]})
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "names.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")


main()
