/* Kinds of characters: what grammars usually treat alike. A kind is a bit; a set of kinds says what
 * a text is made of. Control characters (but tabs and line ends) and what is no UTF-8 are of none.
 * Pure: any thread. */
#ifndef HP_MODEL_GRAMMAR_CHAR_KINDS_H
#define HP_MODEL_GRAMMAR_CHAR_KINDS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CHAR_KINDS = 59,
    CHAR_KIND_DIGIT = 4, /* letters (a to f, others; capitals) before it, all else one by one */
    CHAR_KIND_WIDE = 41, /* the first of characters of more than one byte */
};
#define CHAR_KINDS_ALL ((UINT64_C(1) << CHAR_KINDS) - 1)

/* The kind of a character of one byte; -1: of none, or a part of a wider one. */
int char_kind_of(uint8_t byte);
/* The kind of the character that begins with a byte; -1: of none. */
int char_kind_begun(uint8_t byte);

/* What may follow within a character of more than one byte: bytes in [low, high] now, and so many
 * of any continuation (0x80 to 0xBF) behind it. */
struct char_rest {
    uint8_t low, high, left;
};

/* The first bytes of wide characters: each range has one kind, and one kind of rest. */
struct char_lead {
    uint8_t low, high, kind;
    struct char_rest rest;
};
enum { CHAR_LEADS = 20 };
extern const struct char_lead char_leads[CHAR_LEADS];

/* What a text is made of, byte by byte. */
struct char_count {
    uint64_t kinds;
    uint8_t n;             /* characters that have begun, at most 255 */
    bool none;             /* something of no kind is among them */
    bool inside;           /* `rest` of the last is missing */
    struct char_rest rest; /* while it is inside */
};
struct char_count char_count_next(struct char_count c, uint8_t byte);

#endif
