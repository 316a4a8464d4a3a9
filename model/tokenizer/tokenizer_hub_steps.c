/* The parts of tokenizer.json that are lists of steps beside the normalizer: pre_tokenizer, decoder
 * and post_processor. */
#include <string.h>

#include "model/tokenizer/hub_steps.h"

/* ---- pre-tokenizer ---- */

static int read_behavior(const struct json_at *at, const char *fallback, enum split_behavior *out,
                         struct err *e)
{
    static const struct {
        const char *name;
        enum split_behavior behavior;
    } known[] = {{"Isolated", SPLIT_ISOLATED},
                 {"Removed", SPLIT_REMOVED},
                 {"MergedWithPrevious", SPLIT_WITH_BEFORE},
                 {"MergedWithNext", SPLIT_WITH_NEXT},
                 {"Contiguous", SPLIT_CONTIGUOUS}};
    const char *name;
    int rc = json_opt_string(at, "behavior", fallback, &name, e);
    for (size_t i = 0; rc == 0 && i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].behavior;
            return 0;
        }
    }
    return rc < 0 ? rc : hub_step_unsupported(at, "split behavior", name, NULL, e);
}

static int read_split(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    struct pretokenize_step step = {.kind = PRETOKENIZE_SPLIT};
    struct json_at pattern;
    const char *text;
    int rc = read_behavior(at, "Isolated", &step.behavior, e);
    if (rc == 0)
        rc = json_opt_bool(at, "invert", false, &step.invert, e);
    if (rc == 0)
        rc = json_get(at, "pattern", &pattern, e);
    if (rc < 0)
        return rc;
    bool literal = json_object_get(pattern.value, "String") != NULL;
    rc = json_get_string(&pattern, literal ? "String" : "Regex", &text, e);
    if (rc < 0)
        return rc;
    rc = literal ? pattern_compile_literal(text, strlen(text), &step.pattern, e)
                 : pattern_compile(text, strlen(text), &step.pattern, e);
    if (rc < 0)
        return err_at(e, "%s", at->file);
    return pretokenizer_add(&t->pretokenizer, &step, e);
}

static int read_byte_level(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    bool prefix, cut;
    int rc = json_opt_bool(at, "add_prefix_space", true, &prefix, e);
    if (rc == 0)
        rc = json_opt_bool(at, "use_regex", true, &cut, e);
    if (rc == 0 && prefix)
        rc = pretokenizer_add(&t->pretokenizer,
                              &(struct pretokenize_step){.kind = PRETOKENIZE_PREFIX_SPACE}, e);
    if (rc == 0 && cut)
        rc = pretokenizer_add_gpt2(&t->pretokenizer, e);
    if (rc == 0)
        rc = pretokenizer_add(&t->pretokenizer,
                              &(struct pretokenize_step){.kind = PRETOKENIZE_BYTES}, e);
    t->bytes = true;
    return rc;
}

static int read_scheme(const struct json_at *at, enum metaspace_prepend *out, struct err *e)
{
    const char *scheme, *mark;
    bool prefix;
    int rc = json_opt_string(at, "replacement", "\xE2\x96\x81", &mark, e);
    if (rc == 0 && strcmp(mark, "\xE2\x96\x81") != 0)
        return hub_step_unsupported(at, "replacement", mark, NULL, e);
    if (rc == 0)
        rc = json_opt_bool(at, "add_prefix_space", true, &prefix, e);
    if (rc == 0)
        rc = json_opt_string(at, "prepend_scheme", prefix ? "always" : "never", &scheme, e);
    if (rc < 0)
        return rc;
    *out = strcmp(scheme, "always") == 0  ? METASPACE_ALWAYS
           : strcmp(scheme, "first") == 0 ? METASPACE_FIRST
                                          : METASPACE_NEVER;
    return *out != METASPACE_NEVER || strcmp(scheme, "never") == 0
               ? 0
               : hub_step_unsupported(at, "prepend_scheme", scheme, NULL, e);
}

static int read_metaspace(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    struct pretokenize_step step = {.kind = PRETOKENIZE_METASPACE};
    bool split;
    int rc = read_scheme(at, &step.prepend, e);
    if (rc == 0)
        rc = json_opt_bool(at, "split", true, &split, e);
    if (rc == 0)
        rc = pretokenizer_add(&t->pretokenizer, &step, e);
    return rc < 0 || !split ? rc
                            : pretokenizer_add_split(&t->pretokenizer, "\xE2\x96\x81",
                                                     SPLIT_WITH_NEXT, false, e);
}

static int read_delimiter(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    struct pretokenize_step step = {.kind = PRETOKENIZE_SPLIT, .behavior = SPLIT_REMOVED};
    const char *text;
    int rc = json_get_string(at, "delimiter", &text, e);
    rc = rc < 0 ? rc : pattern_compile_literal(text, strlen(text), &step.pattern, e);
    return rc < 0 ? rc : pretokenizer_add(&t->pretokenizer, &step, e);
}

static int read_pretokenizer_step(struct tokenizer *t, const struct json_at *at, const char *type,
                                  void *ctx, struct err *e)
{
    (void)ctx;
    enum split_behavior behavior;
    if (strcmp(type, "Split") == 0)
        return read_split(t, at, e);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(t, at, e);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(t, at, e);
    if (strcmp(type, "Digits") == 0) {
        bool single;
        int rc = json_opt_bool(at, "individual_digits", false, &single, e);
        return rc < 0
                   ? rc
                   : pretokenizer_add_split(&t->pretokenizer, "\\p{N}",
                                            single ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false, e);
    }
    if (strcmp(type, "Punctuation") == 0) {
        int rc = read_behavior(at, "Isolated", &behavior, e);
        return rc < 0 ? rc
                      : pretokenizer_add_split(&t->pretokenizer, "[!-/:-@\\[-`{-~\\p{P}]", behavior,
                                               false, e);
    }
    if (strcmp(type, "BertPreTokenizer") == 0)
        return pretokenizer_add(&t->pretokenizer,
                                &(struct pretokenize_step){.kind = PRETOKENIZE_BERT}, e);
    if (strcmp(type, "CharDelimiterSplit") == 0)
        return read_delimiter(t, at, e);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return pretokenizer_add_split(&t->pretokenizer, "\\s", SPLIT_REMOVED, false, e);
    if (strcmp(type, "Whitespace") == 0)
        return pretokenizer_add_split(&t->pretokenizer, "\\w+|[^\\w\\s]+", SPLIT_REMOVED, true, e);
    return hub_step_unsupported(
        at, "pre-tokenizer", type,
        "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, "
        "Punctuation, Sequence, Split, Whitespace, WhitespaceSplit",
        e);
}

int tokenizer_read_pretokenizer(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    return hub_steps_each(t, at, "pretokenizers", 0, read_pretokenizer_step, NULL, e);
}

/* ---- decoder ---- */

/* U+2581 becomes a space; nothing else is replaced. */
static int read_decoder_replace(const struct json_at *at, struct err *e)
{
    struct json_at pattern;
    const char *what, *content;
    int rc = json_get_string(at, "content", &content, e);
    rc = rc < 0 ? rc : json_get(at, "pattern", &pattern, e);
    rc = rc < 0 ? rc : json_get_string(&pattern, "String", &what, e);
    if (rc < 0)
        return rc;
    if (strcmp(what, "\xE2\x96\x81") != 0 || strcmp(content, " ") != 0)
        return hub_step_unsupported(at, "decoding replacement of", what, NULL, e);
    return 0;
}

static int read_decoder_strip(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    const char *content;
    double start, stop;
    int rc = json_get_string(at, "content", &content, e);
    rc = rc < 0 ? rc : json_opt_number_min(at, "start", 0, 0, &start, e);
    rc = rc < 0 ? rc : json_opt_number_min(at, "stop", 0, 0, &stop, e);
    if (rc < 0)
        return rc;
    if (strcmp(content, " ") != 0 || start > 1 || stop > 0)
        return hub_step_unsupported(at, "decoder", "Strip", "one space at the start", e);
    t->strip_leading_space = start > 0;
    return 0;
}

static int read_decoder_metaspace(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    enum metaspace_prepend prepend = METASPACE_ALWAYS;
    int rc = read_scheme(at, &prepend, e);
    t->strip_leading_space = prepend != METASPACE_NEVER;
    return rc;
}

static int read_decoder_step(struct tokenizer *t, const struct json_at *at, const char *type,
                             void *ctx, struct err *e)
{
    struct decoder_traits *traits = ctx;
    if (strcmp(type, "ByteLevel") == 0) {
        traits->bytes = true;
    } else if (strcmp(type, "ByteFallback") == 0) {
        traits->byte_fallback = true;
    } else if (strcmp(type, "WordPiece") == 0) {
        traits->words = true;
        int rc = json_opt_string(at, "prefix", "##", &traits->prefix, e);
        return rc < 0 ? rc : json_opt_bool(at, "cleanup", true, &traits->cleanup, e);
    } else if (strcmp(type, "Metaspace") == 0) {
        traits->pieces = true;
        return read_decoder_metaspace(t, at, e);
    } else if (strcmp(type, "Replace") == 0) {
        traits->pieces = true;
        return read_decoder_replace(at, e);
    } else if (strcmp(type, "Strip") == 0) {
        return read_decoder_strip(t, at, e);
    } else if (strcmp(type, "Fuse") != 0) {
        return hub_step_unsupported(
            at, "decoder", type,
            "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece", e);
    }
    return 0;
}

int tokenizer_read_decoder(struct tokenizer *t, const struct json_at *at,
                           struct decoder_traits *traits, struct err *e)
{
    return hub_steps_each(t, at, "decoders", 0, read_decoder_step, traits, e);
}

/* ---- post-processor ---- */

static int add_extra(struct tokenizer *t, const struct json_at *at, uint64_t id, bool last,
                     struct err *e)
{
    int *n = last ? &t->n_last : &t->n_first;
    if (*n == TOKENIZER_MAX_EXTRA)
        return json_fail(at, e, "adds more than %d tokens", TOKENIZER_MAX_EXTRA);
    if (id >= t->vocabulary.n)
        return json_fail(at, e, "adds the token %llu, which is not there", (unsigned long long)id);
    (last ? t->last : t->first)[(*n)++] = (uint32_t)id;
    return 0;
}

/* "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>":
 * {"ids": [1]}} */
static int read_template(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    struct json_at single, specials, special, entry, ids;
    size_t n, n_ids;
    bool behind = false;
    int rc = json_get(at, "single", &single, e);
    if (rc == 0)
        rc = json_as_array(&single, &n, e);
    if (rc == 0)
        rc = json_get(at, "special_tokens", &specials, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&single, i);
        const char *name;
        if (!json_find(&item, "SpecialToken", &special)) {
            behind = true;
            continue;
        }
        rc = json_get_string(&special, "id", &name, e);
        if (rc == 0)
            rc = json_get(&specials, name, &entry, e);
        if (rc == 0)
            rc = json_get(&entry, "ids", &ids, e);
        if (rc == 0)
            rc = json_as_array(&ids, &n_ids, e);
        for (size_t k = 0; rc == 0 && k < n_ids; k++) {
            struct json_at id_at = json_item(&ids, k);
            uint64_t id;
            rc = json_as_u64(&id_at, &id, e);
            if (rc == 0)
                rc = add_extra(t, &id_at, id, behind, e);
        }
    }
    return rc;
}

/* "cls": ["<s>", 0], "sep": ["</s>", 2] */
static int read_pair(struct tokenizer *t, const struct json_at *at, const char *key, bool last,
                     struct err *e)
{
    struct json_at pair;
    uint64_t id;
    size_t n;
    int rc = json_get(at, key, &pair, e);
    if (rc == 0)
        rc = json_as_array(&pair, &n, e);
    if (rc < 0)
        return rc;
    if (n != 2)
        return json_fail(&pair, e, "is not a token and its id");
    struct json_at second = json_item(&pair, 1);
    rc = json_as_u64(&second, &id, e);
    return rc < 0 ? rc : add_extra(t, &second, id, last, e);
}

static int read_post_step(struct tokenizer *t, const struct json_at *at, const char *type,
                          void *ctx, struct err *e)
{
    (void)ctx;
    if (strcmp(type, "ByteLevel") == 0)
        return 0;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(t, at, e);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        int rc = read_pair(t, at, "cls", false, e);
        return rc < 0 ? rc : read_pair(t, at, "sep", true, e);
    }
    return hub_step_unsupported(
        at, "post-processor", type,
        "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing", e);
}

int tokenizer_read_post_processor(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    return hub_steps_each(t, at, "processors", 0, read_post_step, NULL, e);
}
