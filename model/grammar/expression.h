/* What texts may look like, as a tree: the one form that regular expressions, GBNF and JSON schemas
 * become before they are a grammar (grammar.h). Trees are made from their leaves up, never changed,
 * and may share parts.
 *
 * Every maker gives NULL when something failed, and NULL for a NULL part; then `status` and the
 * text in `error` say why (HP_ENOMEM, HP_ELIMIT), so that callers check once. */
#ifndef HP_MODEL_GRAMMAR_EXPRESSION_H
#define HP_MODEL_GRAMMAR_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/status.h"
#include "model/grammar/char_set.h"

enum {
    EXPRESSION_FOREVER = -1, /* repeats without an end */
    EXPRESSION_MAX_REPEAT = 1 << 16,
    EXPRESSION_MAX_BYTES = 32 << 20, /* of all trees of a builder */
    EXPRESSION_MAX_RULES = 1 << 14,
    EXPRESSION_MAX_DEPTH = 1000,    /* expressions in each other */
    EXPRESSION_MAX_STEPS = 1 << 20, /* of all that expression_fit looks at */
};

enum expression_kind {
    EXPRESSION_TEXT,     /* these bytes */
    EXPRESSION_CHARS,    /* one character of a set, as UTF-8 */
    EXPRESSION_SEQUENCE, /* one after the other; of nothing: the empty text */
    EXPRESSION_CHOICE,   /* one of them; of nothing: no text at all */
    EXPRESSION_REPEAT,
    EXPRESSION_RULE /* of the builder, by number */
};

struct expression {
    enum expression_kind kind;
    bool quoted;    /* CHARS: as JSON writes it within a string */
    uint16_t depth; /* 1: it has no parts */
    uint32_t rule;
    int32_t least, most;                   /* REPEAT; most may be EXPRESSION_FOREVER */
    size_t count;                          /* TEXT: bytes; CHARS: ranges; SEQUENCE, CHOICE: parts */
    const char *text;                      /* TEXT */
    const struct char_range *ranges;       /* CHARS: settled */
    const struct expression *const *parts; /* SEQUENCE, CHOICE; REPEAT: one */
};

struct expression_rule {
    const char *name;
    const struct expression *body; /* NULL: not said yet */
};

/* Zero-initialised is ready; expressions_free ends it and all trees. */
struct expressions {
    struct arena arena;
    struct expression_rule *rules; /* the first is where texts begin */
    size_t n_rules, rule_room, n_steps;
    int status;
    struct err error;
};
void expressions_free(struct expressions *x);
/* The first failure counts. Gives NULL. */
const struct expression *expression_fail(struct expressions *x, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A text as it stands; one of the characters of the ranges. Both are copied. NULL: it failed
 * (HP_ENOMEM, HP_ELIMIT). */
const struct expression *expression_text(struct expressions *x, const char *bytes, size_t n);
const struct expression *expression_word(struct expressions *x, const char *text); /* up to NUL */
const struct expression *expression_chars(struct expressions *x, const struct char_range *ranges,
                                          size_t n, bool quoted);
/* Takes the set, which is empty afterwards. */
const struct expression *expression_set(struct expressions *x, struct char_set *set, bool quoted);
/* Copies the list. */
const struct expression *expression_sequence(struct expressions *x,
                                             const struct expression *const *parts, size_t n);
const struct expression *expression_choice(struct expressions *x,
                                           const struct expression *const *parts, size_t n);
const struct expression *expression_repeat(struct expressions *x, const struct expression *body,
                                           int32_t least, int32_t most);
/* A new rule without a body: its number; the name is copied. */
uint32_t expression_rule_add(struct expressions *x, const char *name);
void expression_rule_set(struct expressions *x, uint32_t rule, const struct expression *body);
const struct expression *expression_rule(struct expressions *x, uint32_t rule);

#define EXPRESSION_SEQUENCE_OF(x, ...)                                                             \
    expression_sequence(x, (const struct expression *const[]){__VA_ARGS__},                        \
                        sizeof((const struct expression *const[]){__VA_ARGS__}) /                  \
                            sizeof(const struct expression *))
#define EXPRESSION_CHOICE_OF(x, ...)                                                               \
    expression_choice(x, (const struct expression *const[]){__VA_ARGS__},                          \
                      sizeof((const struct expression *const[]){__VA_ARGS__}) /                    \
                          sizeof(const struct expression *))

/* Growing lists of parts, in the builder's arena. Zero-initialised is empty. */
struct expression_list {
    const struct expression **items;
    size_t count, room;
};
void expression_list_add(struct expressions *x, struct expression_list *l,
                         const struct expression *e);

/* Texts of it that have least to most (EXPRESSION_FOREVER) characters: all of them, or some where
 * all could not be said; NULL without a failure where none was found. HP_ELIMIT: it takes more than
 * EXPRESSION_MAX_STEPS. */
const struct expression *expression_fit(struct expressions *x, const struct expression *e,
                                        int64_t least, int64_t most);

#endif
