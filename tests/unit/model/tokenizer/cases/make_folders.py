"""Writes folders.json: small tokenizer.model and tekken.json files, and what SentencePiece and tiktoken make of odd texts with them.

    pip install sentencepiece tiktoken && python3 make_folders.py

Nobody needs it to run the tests."""
import base64
import io
import json
import os
import random

import sentencepiece
import tiktoken

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = ("the white box holds a clock and seven small birds sing of rain under old stone bridges while naïve café owners count their coins "
         "running runner runs ran unhappy unhappily happiness 東京 に 行く Straße größer Ünïcödé привет мир don't can't it's 12 345 6789").split()
random.seed(7)
CORPUS = [" ".join(random.choices(WORDS, k=12)) + random.choice([".", "!", "?", ", and so on."]) for _ in range(400)]
TEXTS = ["", " ", "the white box", "  The  WHITE box ", "naïve café", "unhappiness runs", "東京に行くthe", "🙂 the 🙂🙂 box", "don't it's can't. \"the\" (box)!",
         "tab\there\nnew\r\nline\n\n\n", "\u00a0nbsp\u3000wide", "x² ½ ﬁ", "привет мир ПРИВЕТ", "a" * 60 + " the", "▁the▁box", "the\x01\x7fbox", "12345.678,9-0", "aaaaaaaaa", "ababababab aaab", "runrunrunning",
         "<tool>the</tool> <tool>", "    four    spaces", "ABBABBABBA"]


def pieces(name, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=out, minloglevel=2, num_threads=1, **options)
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    cases = []
    for text in TEXTS:
        ids = model.encode(text)
        # SentencePiece writes what is unknown in its own way, and drops all marks at the start where others drop one.
        cases.append([text, ids, None if model.unk_id() in ids or text.startswith("▁") else model.decode(ids)])
    return {"name": name, "file": base64.b64encode(out.getvalue()).decode(), "cases": cases}


def tekken():
    pattern = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    more = ["aa", "aaa", "ab", "bab", "aba", "AB", "BB", "BBA", "BA", "th", "the", " the", "un", "ru", "n run", "run", "nn", "in", "ing", "ning", "it", "\u00e9", " box", "ox", "bo", "東", "東京", "  ", "   ", "hite", "hi", "te", "\r\n", "пр", "aaaaa"]
    tokens = [bytes([i]) for i in range(256)] + [t.encode() for t in more] + [b"\xe6\x9d", b"\x9f\x99"]
    special = 20
    vocab = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": t.decode(errors="ignore") or None} for i, t in enumerate(tokens)] + \
            [{"rank": len(tokens), "token_bytes": base64.b64encode(b"unused").decode(), "token_str": "unused"}]
    encoding = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks={t: i for i, t in enumerate(tokens)}, special_tokens={})
    root = {"config": {"pattern": pattern, "num_vocab_tokens": len(vocab), "default_vocab_size": special + len(tokens), "default_num_special_tokens": special, "version": "v3"}, "vocab": vocab}
    cases = [[text, [1] + [i + special for i in encoding.encode_ordinary(text)], text] for text in TEXTS]
    return {"name": "tekken", "tekken": root, "cases": cases}


def main():
    folders = [
        pieces("bpe", model_type="bpe", vocab_size=480, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, user_defined_symbols=["<tool>", "▁▁▁▁", "\n\n"]),
        pieces("bpe, plain", model_type="bpe", vocab_size=200, normalization_rule_name="identity", add_dummy_prefix=False),
        pieces("unigram", model_type="unigram", hard_vocab_limit=False, vocab_size=190, normalization_rule_name="identity", user_defined_symbols=["<tool>"]),
        pieces("unigram, bytes", model_type="unigram", hard_vocab_limit=False, vocab_size=440, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False),
        tekken(),
    ]
    with open(os.path.join(HERE, "folders.json"), "w") as f:
        f.write('{"folders": [\n')
        f.write(",\n".join(json.dumps(x, ensure_ascii=False) for x in folders))
        f.write("\n]}\n")


main()
