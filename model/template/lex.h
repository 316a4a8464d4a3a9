/* Template source to tokens: text, and what stands between {{ }} and {% %}. */
#ifndef HP_MODEL_TEMPLATE_LEX_H
#define HP_MODEL_TEMPLATE_LEX_H

#include "common/arena.h"
#include "common/status.h"
#include "model/template/text.h"

enum lexeme_kind {
    TOKEN_END,
    TOKEN_TEXT,
    TOKEN_EXPRESSION_BEGIN,
    TOKEN_EXPRESSION_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_OPERATOR /* .op: a character or one of OP_* of tree.h */
};

struct lexeme {
    enum lexeme_kind kind;
    int op, line;
    struct text text; /* a string's is unescaped */
};

/* Tokens of a whole source into `tokens` (struct lexeme, TOKEN_END last); texts live in `arena` or
 * the copy of the source there. HP_EPARSE, HP_ELIMIT or HP_ENOMEM with "line N: reason". */
int template_lex(struct arena *arena, const char *source, size_t size, struct buffer *tokens,
                 struct err *e);

#endif
