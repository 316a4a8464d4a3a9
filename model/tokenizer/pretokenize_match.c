/* The name of a pre-tokenizer that came as patterns: that of the known one which cuts a text of
 * everything that patterns treat differently into the same words. */
#include <string.h>

#include "model/tokenizer/pretokenize.h"

/* Contractions in both cases and with other quotes, runs of digits, capitals within words, marks on
 * letters, letters without case, Chinese and kana, punctuation of several kinds, alone and in runs,
 * before letters and line ends, white space of several kinds and lengths. */
static const char probe[] =
    "I'll We'VE they're CAN'T don\u2019t it's2 'twas '\u00e9 x'd\n"
    "0 12 345 6789 1234567 3.14 1,000 \u0663\u0664 \u00b2\u00bd v2a 7th\n\n"
    "helloWorld HTTPServer iPhone \u01c5ungla caf\u00e9 cafe\u0301 na\u00efve \u0130stanbul "
    "\u05e9\u05dc\u05d5\u05dd \u0939\u093f\u0928\u094d\u0926\u0940\n \n"
    "\u4f60\u597d\u4e16\u754c \u6f22\u5b57\u304b\u306a\u30ab\u30ca 123\u5e74 a\u4e2db "
    "\ud55c\uad6d\uc5b4 x\uff01\uff1f\r\n"
    "...!!! a.b #tag $5 <=> +1 ~^| \"q\" (x) a_b _c -d /e //\n/f !\n$x \u2014 \u00ab\u00bb \u20ac "
    "\u2202 \U0001f600\U0001f600\n"
    "   three    four\t\ttab \t mix\u00a0nbsp\u3000wide   \n   \r\n\n\n  end.  ";

static int words_cut(const struct pretokenizer *p, struct words *w, struct err *e)
{
    return pretokenizer_run(p, probe, sizeof probe - 1, true, w, e);
}

static bool words_same(const struct words *a, const struct words *b)
{
    return a->text.size == b->text.size && a->ranges.size == b->ranges.size &&
           memcmp(a->text.data, b->text.data, a->text.size) == 0 &&
           memcmp(a->ranges.data, b->ranges.data, a->ranges.size) == 0;
}

/* Whether the named one cuts as `wanted` is cut. */
static int named_matches(const char *name, const struct words *wanted, bool *same, struct err *e)
{
    struct pretokenizer p = {0};
    struct words w = {0};
    int rc = pretokenizer_add_named(&p, name, strlen(name), e);
    rc = rc < 0 ? rc : words_cut(&p, &w, e);
    *same = rc == 0 && words_same(&w, wanted);
    words_free(&w);
    pretokenizer_fini(&p);
    return rc;
}

int pretokenizer_name(const struct pretokenizer *p, const struct pretokenize_traits *traits,
                      const char **out, struct err *e)
{
    struct words wanted = {0};
    const char *name;
    bool found = false, same = false;
    int rc = words_cut(p, &wanted, e);
    for (int i = 0; rc == 0 && !found && (name = pretokenizer_known(i)); i++) {
        struct pretokenize_traits t = pretokenize_traits_of(name, strlen(name));
        rc = named_matches(name, &wanted, &same, e);
        found = same && t.nfc == traits->nfc && t.ignore_merges == traits->ignore_merges;
        *out = name;
    }
    words_free(&wanted);
    if (rc == 0 && !found) {
        err_set(
            e, HP_EUNSUPPORTED,
            "GGUF has no name that is known here for how the tokenizer cuts text into words%s%s",
            traits->nfc ? ", in NFC" : "",
            traits->ignore_merges ? ", with tokens that go before merges" : "");
        return HP_EUNSUPPORTED;
    }
    return rc;
}
