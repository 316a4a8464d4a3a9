/* The tree that the parser makes of a template and the interpreter walks. It lives in the
 * template's arena and never changes after parsing, so that several threads may run it. */
#ifndef HP_MODEL_TEMPLATE_TREE_H
#define HP_MODEL_TEMPLATE_TREE_H

#include "model/template/value.h"

enum node_kind {
    /* expressions */
    NODE_CONST,   /* value */
    NODE_NAME,    /* text */
    NODE_LIST,    /* children */
    NODE_TUPLE,   /* children */
    NODE_DICT,    /* children: key, value, key, value ... */
    NODE_ATTR,    /* a . text */
    NODE_ITEM,    /* a [b] */
    NODE_SLICE,   /* a : b : c, each may be NULL; only as b of an ITEM */
    NODE_CALL,    /* a (children) */
    NODE_KEYWORD, /* text = a; only among the children of a call, filter or test */
    NODE_FILTER,  /* a | text (children); a is NULL where a block is filtered */
    NODE_TEST,    /* a is text (children) */
    NODE_NOT,     /* a */
    NODE_NEGATE,  /* a */
    NODE_PLUS,    /* a */
    NODE_BINARY,  /* a op b */
    NODE_AND,     /* a, b */
    NODE_OR,      /* a, b */
    NODE_CONCAT,  /* children */
    NODE_COMPARE, /* a, then children: OPERAND */
    NODE_OPERAND, /* op a */
    NODE_CHOOSE,  /* b if a else c */
    /* statements */
    NODE_TEXT,         /* text */
    NODE_OUTPUT,       /* a */
    NODE_IF,           /* children: BRANCH */
    NODE_BRANCH,       /* a (NULL: else), children */
    NODE_FOR,          /* for a in b if c: children, else: others */
    NODE_SET,          /* a = b */
    NODE_SET_BLOCK,    /* a = children, through the filters b */
    NODE_FILTER_BLOCK, /* children through the filters b */
    NODE_WITH,         /* children: SET ..., body: others */
    NODE_BODY,         /* children */
    NODE_MACRO,        /* text; op: MACRO_*; children: PARAMETER; body: others */
    NODE_CALL_BLOCK,   /* a: the CALL; b: the MACRO that it may call as `caller` */
    NODE_PARAMETER,    /* text, default a or NULL */
    NODE_BREAK,
    NODE_CONTINUE
};

/* Operators, as their characters: '+', '-', '*', '/', '%', '<', '>', '~' and these. */
enum {
    OP_FLOOR = 'f',
    OP_POWER = 'p',
    OP_EQ = 'e',
    OP_NE = 'n',
    OP_LE = 'l',
    OP_GE = 'g',
    OP_IN = 'i',
    OP_NOT_IN = 'o'
};

/* Names that a macro's body uses: without them it takes no such arguments. */
enum { MACRO_VARARGS = 1, MACRO_KWARGS = 2, MACRO_CALLER = 4 };

struct node {
    enum node_kind kind;
    int op, line;
    struct node *next; /* in its parent's children or others */
    struct node *a, *b, *c;
    struct node *children, *others;
    struct text text;
    struct value value;
};

#endif
