/* A tokenizer from SentencePiece's tokenizer.model, with the tokens that the folder's other files
 * add to its pieces. Ids and words are those of transformers' slow tokenizers, which have such a
 * file: special tokens are looked for in the text, all else is SentencePiece's. */
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "model/tokenizer/piece_file.h"
#include "model/tokenizer/tokenizer_int.h"

/* A token beside the pieces, or one that a piece's id has instead. */
struct added_text {
    const char *text;
    struct added_token token;
};

struct pieces_reading {
    struct tokenizer *t;
    const char *file;
    const struct folder_settings *s;
    struct piece_file p;
    struct added_text *added;
    size_t n_added;
    uint32_t n;       /* ids, of pieces and added tokens */
    bool *takes_part; /* [n]: normal pieces, which text becomes */
    bool *is_added;   /* [n] */
    struct err *e;
};

/* ---- the tokens that are added ---- */

static bool is_named_special(const struct json_at *settings, const char *text)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token", "unk_token",
                                        "cls_token", "sep_token", "mask_token"};
    size_t n_names = sizeof names / sizeof *names;
    const json_t *more =
        settings ? json_object_get(settings->value, "additional_special_tokens") : NULL;
    for (size_t i = 0; settings && i < n_names + json_array_size(more); i++) {
        const json_t *value = i < n_names ? json_object_get(settings->value, names[i])
                                          : json_array_get(more, i - n_names);
        if (json_is_object(value))
            value = json_object_get(value, "content");
        if (json_is_string(value) && strcmp(json_string_value(value), text) == 0)
            return true;
    }
    return false;
}

static int added_push(struct pieces_reading *r, const struct json_at *at, const char *text,
                      uint64_t id, struct added_token token)
{
    enum { MORE_IDS = 65536 }; /* files with holes exist, files that lie do too */
    if (id >= (uint64_t)r->p.n * 8 + MORE_IDS || id >= VOCABULARY_MAX_IDS)
        return json_fail(at, r->e, "the id %llu is out of all proportion to the number of tokens",
                         (unsigned long long)id);
    for (size_t i = 0; i < r->n_added; i++)
        if (r->added[i].token.id == id)
            return 0;
    token.id = (uint32_t)id;
    r->added[r->n_added++] = (struct added_text){text, token};
    r->n = id >= r->n ? (uint32_t)id + 1 : r->n;
    return 0;
}

/* "added_tokens_decoder": {"32000": {"content": "<|im_end|>", "special": true, ...}}. */
static int read_added_by_id(struct pieces_reading *r, const struct json_at *list)
{
    const char *key, *text;
    json_t *value;
    json_object_foreach(list->value, key, value)
    {
        struct json_at at = {list->file, value, list, key, 0};
        struct added_token a = {0};
        char *end;
        unsigned long long id = strtoull(key, &end, 10);
        if (*key < '0' || *key > '9' || *end)
            return json_fail(&at, r->e, "is not named by an id");
        int rc = json_get_string(&at, "content", &text, r->e);
        rc = rc < 0 ? rc : json_opt_bool(&at, "lstrip", false, &a.lstrip, r->e);
        rc = rc < 0 ? rc : json_opt_bool(&at, "rstrip", false, &a.rstrip, r->e);
        rc = rc < 0 ? rc : json_opt_bool(&at, "single_word", false, &a.single_word, r->e);
        rc = rc < 0 ? rc : json_opt_bool(&at, "special", false, &a.special, r->e);
        rc = rc < 0 ? rc : added_push(r, &at, text, id, a);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* added_tokens.json: {"<|im_end|>": 32000}. */
static int read_added_by_text(struct pieces_reading *r, const struct json_at *list)
{
    const char *text;
    json_t *value;
    json_object_foreach(list->value, text, value)
    {
        struct json_at at = {list->file, value, list, text, 0};
        uint64_t id;
        int rc = json_as_u64(&at, &id, r->e);
        struct added_token a = {.special = is_named_special(r->s->settings, text)};
        rc = rc < 0 ? rc : added_push(r, &at, text, id, a);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_added(struct pieces_reading *r)
{
    enum { ADDED_MAX = 65536 };
    struct json_at by_id = {0};
    bool has_ids = r->s->settings && json_find(r->s->settings, "added_tokens_decoder", &by_id);
    size_t n = (has_ids ? json_object_size(by_id.value) : 0) +
               (r->s->added ? json_object_size(r->s->added->value) : 0);
    if (n > ADDED_MAX)
        return err_set(r->e, HP_ELIMIT, "%s: %zu tokens are added to it; at most %d are read",
                       r->file, n, ADDED_MAX);
    r->added = arena_alloc(&r->t->arena, n + 1, sizeof *r->added);
    int rc = r->added ? 0 : err_set(r->e, HP_ENOMEM, "%s: out of memory", r->file);
    if (rc == 0 && has_ids)
        rc = json_as_object(&by_id, r->e);
    if (rc == 0 && has_ids)
        rc = read_added_by_id(r, &by_id);
    return rc < 0 || !r->s->added ? rc : read_added_by_text(r, r->s->added);
}

/* ---- the vocabulary ---- */

static int set_texts(struct pieces_reading *r)
{
    struct tokenizer *t = r->t;
    int rc = 0;
    for (uint32_t id = 0; id < r->p.n && rc == 0; id++)
        rc = vocabulary_set(&t->vocabulary, &t->arena, id, r->p.pieces[id].text,
                            r->p.pieces[id].size, r->e);
    for (size_t i = 0; i < r->n_added && rc == 0; i++) {
        const struct added_text *a = &r->added[i];
        uint32_t id = a->token.id;
        rc = vocabulary_set(&t->vocabulary, &t->arena, id, a->text, strlen(a->text), r->e);
        rc = rc < 0 ? rc : added_tokens_add(&t->raw, a->text, strlen(a->text), &a->token, r->e);
        t->vocabulary.tokens[id].special = a->token.special;
        r->is_added[id] = true;
    }
    return rc;
}

/* What a piece means in a text and when it is written. */
static int set_meaning(struct pieces_reading *r, uint32_t id)
{
    struct tokenizer *t = r->t;
    const struct vocabulary_piece *p = &r->p.pieces[id];
    struct added_token spelled = {.id = id};
    switch (p->type) {
    case PIECE_NORMAL:
        r->takes_part[id] = true;
        vocabulary_index(&t->vocabulary, id);
        break;
    case PIECE_UNKNOWN:
    case PIECE_CONTROL:
        t->vocabulary.tokens[id].special = spelled.special = true;
        return added_tokens_add(&t->raw, p->text, p->size, &spelled, r->e);
    case PIECE_USER_DEFINED: {
        int rc = added_tokens_add(&t->normalized, p->text, p->size, &spelled, r->e);
        return rc < 0 ? rc : tokenizer_set_piece_text(t, id, r->e);
    }
    case PIECE_UNUSED:
    case PIECE_BYTE: break;
    }
    return tokenizer_set_piece_text(t, id, r->e);
}

static int read_vocabulary(struct pieces_reading *r)
{
    int rc = vocabulary_init(&r->t->vocabulary, &r->t->arena, r->n, r->e);
    rc = rc < 0 ? rc : set_texts(r);
    for (uint32_t id = 0; id < r->p.n && rc == 0; id++)
        if (!r->is_added[id])
            rc = set_meaning(r, id);
    return rc;
}

static int64_t unknown_find(const struct pieces_reading *r)
{
    for (uint32_t id = 0; id < r->p.n; id++)
        if (r->p.pieces[id].type == PIECE_UNKNOWN)
            return id;
    return r->p.unknown < (int64_t)r->p.n ? r->p.unknown : -1;
}

static int make_bpe(struct pieces_reading *r)
{
    float *scores = calloc(r->n, sizeof *scores);
    if (!scores)
        return err_set(r->e, HP_ENOMEM, "%s: out of memory for %u scores", r->file, r->n);
    for (uint32_t id = 0; id < r->p.n; id++)
        scores[id] = r->p.pieces[id].score;
    int rc = bpe_init_scores(&r->t->bpe, &r->t->arena, &r->t->vocabulary, scores, BPE_TIES_LEFTMOST,
                             r->takes_part, r->e);
    r->t->bpe.unknown = unknown_find(r);
    r->t->bpe.fuse_unknown = true;
    free(scores);
    return rc;
}

static int make_unigram(struct pieces_reading *r)
{
    double *scores = calloc(r->n, sizeof *scores);
    int rc = scores ? 0 : err_set(r->e, HP_ENOMEM, "%s: out of memory for scores", r->file);
    for (uint32_t id = 0; rc == 0 && id < r->p.n; id++)
        scores[id] = r->p.pieces[id].score;
    rc = rc < 0 ? rc : bpe_init(&r->t->bpe, &r->t->arena, &r->t->vocabulary, 0, r->e);
    r->t->bpe.unknown = unknown_find(r);
    rc = rc < 0 ? rc : tokenizer_make_unigram(r->t, scores, r->e);
    free(scores);
    return rc;
}

static int read_bytes(struct pieces_reading *r)
{
    int rc = 0;
    for (uint32_t id = 0; r->p.byte_fallback && id < r->p.n && rc == 0; id++) {
        const struct vocabulary_piece *p = &r->p.pieces[id];
        int byte = p->type == PIECE_BYTE ? tokenizer_byte_of_name(p->text, p->size) : -1;
        if (byte >= 0)
            rc = tokenizer_set_byte_token(r->t, id, (uint8_t)byte, r->e);
    }
    return rc;
}

/* ---- the steps ---- */

static int add_step(struct pieces_reading *r, enum normalize_kind kind, const char *what,
                    const char *with)
{
    return normalizer_add(&r->t->normalizer,
                          &(struct normalize_step){.kind = kind,
                                                   .what = what,
                                                   .with = with,
                                                   .what_size = strlen(what),
                                                   .with_size = strlen(with)},
                          r->e);
}

static int add_charsmap(struct pieces_reading *r)
{
    struct charsmap *map = arena_alloc(&r->t->arena, 1, sizeof *map);
    int rc = map ? charsmap_read(r->p.charsmap, r->p.charsmap_bytes, &r->t->arena, map, r->e)
                 : err_set(r->e, HP_ENOMEM, "out of memory");
    if (rc < 0)
        return err_at(r->e, "%s", r->file);
    return normalizer_add(&r->t->normalizer,
                          &(struct normalize_step){.kind = NORMALIZE_CHARSMAP, .map = map}, r->e);
}

/* `legacy` false: only the whole text gets a space before it, not what follows a special token. */
static int add_steps(struct pieces_reading *r)
{
    bool prefix = r->p.prefix, legacy = true;
    int rc = r->p.charsmap_bytes ? add_charsmap(r) : 0;
    if (rc == 0 && r->s->settings) {
        rc = json_opt_bool(r->s->settings, "add_prefix_space", prefix, &prefix, r->e);
        rc = rc < 0 ? rc : json_opt_bool(r->s->settings, "legacy", true, &legacy, r->e);
    }
    if (rc == 0 && r->p.squeeze)
        rc = add_step(r, NORMALIZE_SQUEEZE, "", "");
    if (rc == 0 && prefix)
        rc = add_step(r, NORMALIZE_PREPEND, "", "\xE2\x96\x81");
    r->t->strip_leading_space = prefix || r->p.squeeze;
    r->t->prepend_once = !legacy;
    return rc < 0 ? rc : add_step(r, NORMALIZE_REPLACE, " ", "\xE2\x96\x81");
}

/* ---- special tokens ---- */

static const char *control_text(const struct pieces_reading *r, int64_t id)
{
    return id >= 0 && id < (int64_t)r->p.n && r->p.pieces[id].type != PIECE_NORMAL &&
                   r->t->vocabulary.tokens[id].text
               ? r->t->vocabulary.tokens[id].text
               : "";
}

/* Before a text stands the first token where pieces are merged (LLaMA, Gemma), behind it the last
 * one where they are a unigram's (T5), unless the folder says otherwise. */
static void read_specials(struct pieces_reading *r)
{
    struct tokenizer *t = r->t;
    t->bos_text = control_text(r, r->p.first);
    t->eos_text = control_text(r, r->p.last);
    t->pad_text = control_text(r, r->p.pad);
    t->unknown_text = control_text(r, t->bpe.unknown);
    tokenizer_read_names(t, r->s->settings);
    bool merged = r->p.model == PIECE_MODEL_BPE;
    int64_t mark = tokenizer_id_of(t, merged ? t->bos_text : t->eos_text);
    if (mark >= 0 && merged)
        t->first[t->n_first++] = (uint32_t)mark;
    else if (mark >= 0)
        t->last[t->n_last++] = (uint32_t)mark;
    tokenizer_read_switches(t, r->s->settings, true);
}

/* Classes whose ids are not the pieces' places. */
static int class_refuse(const struct pieces_reading *r)
{
    static const char *const classes[] = {"Barthez", "BertGeneration", "Camembert",   "FSMT",
                                          "M2M100",  "MBart",          "Marian",      "Nllb",
                                          "PLBart",  "Pegasus",        "SeamlessM4T", "Speech2Text",
                                          "XGLM",    "XLMRoberta",     "XLNet"};
    const json_t *value =
        r->s->settings ? json_object_get(r->s->settings->value, "tokenizer_class") : NULL;
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strncmp(name, classes[i], strlen(classes[i])) == 0) {
            err_set(r->e, HP_EUNSUPPORTED,
                    "%s: a %.64s numbers its tokens otherwise than its pieces lie", r->file, name);
            return err_hint(r->e, "fetch the folder's tokenizer.json, which says how");
        }
    return 0;
}

static int read_all(struct pieces_reading *r, const void *bytes, size_t size)
{
    struct tokenizer *t = r->t;
    int rc = class_refuse(r);
    rc = rc < 0 ? rc : piece_file_read(r->file, bytes, size, &t->arena, &r->p, r->e);
    r->n = r->p.n;
    rc = rc < 0 ? rc : read_added(r);
    if (rc < 0)
        return rc;
    r->takes_part = calloc(r->n, sizeof *r->takes_part);
    r->is_added = calloc(r->n, sizeof *r->is_added);
    if (!r->takes_part || !r->is_added)
        return err_set(r->e, HP_ENOMEM, "%s: out of memory for %u tokens", r->file, r->n);
    rc = add_steps(r);
    rc = rc < 0 ? rc : read_vocabulary(r);
    rc = rc < 0 ? rc : r->p.model == PIECE_MODEL_BPE ? make_bpe(r) : make_unigram(r);
    rc = rc < 0 ? rc : read_bytes(r);
    if (rc < 0)
        return rc;
    read_specials(r);
    tokenizer_find_marks(t);
    rc = added_tokens_finish(&t->raw, r->e);
    return rc < 0 ? rc : added_tokens_finish(&t->normalized, r->e);
}

int tokenizer_read_pieces(struct tokenizer *t, const char *file, const void *bytes, size_t size,
                          const struct folder_settings *s, struct err *e)
{
    struct pieces_reading r = {.t = t, .file = file, .s = s, .e = e};
    int rc = read_all(&r, bytes, size);
    free(r.takes_part);
    free(r.is_added);
    return rc;
}
