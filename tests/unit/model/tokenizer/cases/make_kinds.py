"""Writes kinds.json: small tokenizers of every kind and what Hugging Face's `tokenizers` and SentencePiece make of odd texts with them.

    pip install tokenizers==0.23.* sentencepiece && python3 make_kinds.py

Nobody needs it to run the tests."""
import base64
import io
import json
import os
import random
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Regex

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = ("the white box holds a clock and seven small birds sing of rain under old stone bridges while naïve café owners count their coins "
         "running runner runs ran unhappy unhappily happiness 東京 に 行く Straße größer Ünïcödé привет мир don't can't it's 12 345 6789").split()
random.seed(7)
CORPUS = [" ".join(random.choices(WORDS, k=12)) + random.choice([".", "!", "?", ", and so on."]) for _ in range(400)]
TEXTS = ["", " ", "the white box", "  The  WHITE box ", "naïve café", "nai\u0308ve cafe\u0301", "unhappiness runs", "東京に行くthe", "🙂 the 🙂🙂 box", "don't it's can't. \"the\" (box)!",
         "tab\there\nnew\r\nline", "zero\u200bwidth\u00adsoft", "\u00a0nbsp\u3000wide", "x² ½ ⅷ Ⅷ ﬁ", "привет мир ПРИВЕТ", "İstanbul ẞ Ǆ", "a" * 120 + " the", "▁the▁box", "##ing [UNK] <unk> <s> the</s>",
         "the\x01\x7f\ufffdbox\ufeff", "क्षत्रिय ั้ํ", "e\u0323\u0301 o\u0302\u0300", "12345.678,9-0", "--- ... ???", "\ue000private\U000e0041tag", "the\u2028line\u2029para\x85nel", "ａｂｃ１２３", "한국어 조선말"]


def entry(name, tokenizer, note=""):
    cases = []
    for text in TEXTS:
        got = tokenizer.encode(text)
        cases.append([text, got.ids, tokenizer.decode(got.ids, skip_special_tokens=False)])
    return {"name": name, "tokenizer": json.loads(tokenizer.to_str()), "cases": cases}


def wordpiece(lowercase, strip_accents=None, han=True, clean=True):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(clean_text=clean, handle_chinese_chars=han, strip_accents=strip_accents, lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=170, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    return t


def unigram(normalizer, pre, byte_fallback=False, size=170):
    t = Tokenizer(models.Unigram())
    t.normalizer, t.pre_tokenizer = normalizer, pre
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    if not getattr(pre, "split", True):  # the library's own decoder drops the spaces inside of a first token
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    if byte_fallback:
        d = json.loads(t.to_str())
        d["model"]["byte_fallback"] = True
        d["model"]["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in range(256)]
        d["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}
        t = Tokenizer.from_str(json.dumps(d))
    return t


def sentence_pieces():
    """A unigram model of SentencePiece's own, with a small table of characters."""
    rules = [(b"\xef\xac\x81".decode(), "fi"), ("ａ", "a"), ("ｂ", "b"), ("e\u0301", "é"), ("\t", " "), ("\n", " "), ("\u3000", " "), ("½", "1/2"), ("\u200b", "")]
    with tempfile.TemporaryDirectory() as folder:
        tsv, corpus = os.path.join(folder, "rules.tsv"), os.path.join(folder, "corpus.txt")
        with open(tsv, "w") as f:
            f.writelines(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in rules)
        with open(corpus, "w") as f:
            f.write("\n".join(CORPUS))
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(input=corpus, model_writer=model, vocab_size=100, model_type="unigram", normalization_rule_tsv=tsv, minloglevel=2)
    proto = pb.ModelProto()
    proto.ParseFromString(model.getvalue())
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return {"charsmap": base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode(),
            "pieces": [[p.piece, p.score, p.type] for p in proto.pieces],
            "cases": [[text, sp.encode(text, add_eos=True)] for text in TEXTS if "<" not in text]}


def main():
    charsmap = normalizers.Sequence([normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])
    kinds = [entry("uncased", wordpiece(True)), entry("cased", wordpiece(False)), entry("accents kept", wordpiece(True, strip_accents=False, han=False, clean=False)),
             entry("unigram", unigram(normalizers.NFKC(), pre_tokenizers.Metaspace())),
             entry("unigram with bytes", unigram(normalizers.Sequence([normalizers.Nmt(), normalizers.Replace(Regex(" {2,}"), " ")]), pre_tokenizers.Metaspace(prepend_scheme="first"), True)),
             entry("unigram, whole text", unigram(charsmap, pre_tokenizers.Metaspace(split=False))),
             entry("accents stripped", unigram(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
                                               pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])))]
    with open(os.path.join(HERE, "kinds.json"), "w") as f:
        f.write('{"kinds": [\n' + ",\n".join(json.dumps(k, ensure_ascii=False) for k in kinds) + '],\n"pieces": ' + json.dumps(sentence_pieces(), ensure_ascii=False) + "}\n")


main()
