/* Inside the template interpreter: tokens, nodes, values and the state of one run. Source of the
 * language: the Jinja 3 documentation, with the behaviour of Python's values (truth, repr, slices,
 * string methods) as its templates expect. */
#ifndef HP_MODEL_TEMPLATE_INT_H
#define HP_MODEL_TEMPLATE_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/bytes.h"
#include "common/status.h"
#include "model/cpu_limit.h"
#include "model/template.h"

/* ---- values
 * -------------------------------------------------------------------------------------------------
 */

enum value_type {
    VALUE_UNDEFINED, /* .string: the name that was not there */
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_DICT,
    VALUE_NAMESPACE, /* .dict: the only value that changes */
    VALUE_FUNCTION,  /* .string: its name */
    VALUE_METHOD,    /* .method */
    VALUE_MACRO,     /* .macro */
    VALUE_LOOP       /* .loop */
};

struct list;
struct dict;
struct method;
struct macro;
struct loop;

struct text {
    const char *data; /* UTF-8 */
    size_t size;
};

struct value {
    enum value_type type;
    bool safe; /* of a string: fit for HTML, as `escape` and `safe` mark it (markupsafe.Markup) */
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct text string;
        struct list *list;
        struct dict *dict;
        struct method *method;
        struct macro *macro;
        struct loop *loop;
    };
};

enum list_kind {
    LIST_PLAIN,
    LIST_TUPLE,
    LIST_RANGE, /* numbers from `start` by `step`, before `stop` */
    LIST_LAZY   /* what Python calls a generator: true even when empty, without length or index */
};

struct list {
    enum list_kind kind;
    bool group; /* a tuple of groupby: its parts are `grouper` and `list`, too */
    struct value *items;
    size_t n, capacity;
    int64_t start, stop, step;
};

struct pair {
    struct value key, value;
};

struct dict {
    struct pair *pairs; /* in the order in which keys came */
    size_t n, capacity;
};

struct method {
    struct value self;
    struct text name;
};

struct loop {
    struct list *items;
    size_t at;
    int depth;
};

/* ---- the tree
 * -----------------------------------------------------------------------------------------------
 */

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

struct chat_template {
    struct arena arena;
    struct node *body; /* a BODY */
};

/* ---- tokens
 * -------------------------------------------------------------------------------------------------
 */

enum token_kind {
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
    TOKEN_OPERATOR /* .op: a character or one of OP_* */
};

struct lexeme {
    enum token_kind kind;
    int op, line;
    struct text text; /* a string's is unescaped */
};

/* Tokens of a whole source into `tokens` (struct lexeme, TOKEN_END last); texts live in `arena` or
 * the copy of the source there.
 */
int template_lex(struct arena *arena, const char *source, size_t size, struct buffer *tokens,
                 struct err *e);

/* ---- parsing
 * ------------------------------------------------------------------------------------------------
 */

enum { TEMPLATE_MAX_NESTING = 120, TEMPLATE_MAX_DEPTH = 600 };

struct parser {
    struct arena *arena;
    const struct lexeme *at;
    int nesting;
    int loops;       /* around the place, for break and continue */
    int macro_names; /* MACRO_* of the macro around the place */
    struct err *e;
};

int parse_fail(struct parser *p, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
struct node *parse_node(struct parser *p, enum node_kind kind);
bool parse_is_name(const struct parser *p, const char *name);
bool parse_is_op(const struct parser *p, int op);
bool parse_skip_op(struct parser *p, int op);
bool parse_skip_name(struct parser *p, const char *name);
int parse_expect_op(struct parser *p, int op, const char *what);
/* "WANTED is expected where ... stands" */
int parse_unexpected(struct parser *p, const char *wanted);
/* Each gives NULL after parse_fail. */
struct node *parse_wrong(struct parser *p, const char *wanted);
struct node *parse_unary_node(struct parser *p, enum node_kind kind, struct node *a);
struct node *parse_binary_node(struct parser *p, enum node_kind kind, int op, struct node *a,
                               struct node *b);
/* template_primary.c */
struct node *parse_primary(struct parser *p);
struct node *parse_postfix(struct parser *p, struct node *n);
struct node *parse_attribute(struct parser *p, struct node *of);
struct node *parse_filters_and_tests(struct parser *p, struct node *n);
struct node *parse_expression(struct parser *p);
/* One expression, or a tuple where a comma follows; with `conditional` false `x if y` is not taken.
 */
struct node *parse_tuple(struct parser *p, bool conditional);
/* "| name(...)" and on, applied to `input`, which is NULL for a block. */
struct node *parse_filters(struct parser *p, struct node *input);
/* The first filter of a chain, whose bar is taken or was left out. */
struct node *parse_filter(struct parser *p, struct node *input);
/* Name, attribute of a name, or several of them: what `set` and `for` write to. */
struct node *parse_target(struct parser *p);
/* template_parse.c */
int template_parse(struct parser *p, struct node **body);

/* ---- running
 * ------------------------------------------------------------------------------------------------
 */

struct binding {
    struct text name;
    struct value value;
    struct binding *next;
};

struct scope {
    struct scope *parent;
    struct binding *bindings;
    bool kept; /* a macro was made within it, and may look it up later */
};

struct macro {
    const struct node *node;
    struct scope *scope; /* where it was made */
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct run {
    struct arena arena; /* every value of this run */
    size_t steps, max_steps, look_at, written, max_output;
    struct cpu_limit time; /* looked at whenever steps reach look_at */
    int depth, line, loop_depth;
    struct scope *scope;
    struct scope *free_scopes;     /* by parent: memory of scopes that ended, for the next */
    struct binding *free_bindings; /* by next */
    struct buffer *out;
    int64_t now_s;
    enum flow flow;
    struct err *e;
};

/* Arguments of a call: positional, then named. */
struct arguments {
    struct value *values;
    size_t n;
    struct pair *named;
    size_t n_named;
};

/* Writes "line N: ..." and gives `code`. */
int run_fail(struct run *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Count work before it is done; HP_ELIMIT when there has been too much, in steps or in time.
 * Copying text counts a step for every 64 bytes, going through its characters one for every 8. */
int run_tick(struct run *r, size_t steps);
int run_tick_bytes(struct run *r, size_t bytes);
int run_tick_text(struct run *r, size_t bytes);
void *run_alloc(struct run *r, size_t count, size_t size); /* NULL after run_fail */
int run_evaluate(struct run *r, const struct node *n, struct value *out);
int run_body(struct run *r, const struct node *first);
int run_write(struct run *r, const char *data, size_t size);
/* What the statements from `first` on write, as a string, in a scope of their own. */
int run_capture(struct run *r, const struct node *first, struct value *out);
int run_scope_push(struct run *r, struct scope *parent, struct scope **saved);
/* Ends the scope that was pushed and goes back to `saved`. */
void run_scope_pop(struct run *r, struct scope *saved);
int run_bind(struct run *r, struct text name, struct value v);
int run_call(struct run *r, const struct value *callee, const struct arguments *args,
             struct value *out);
int run_arguments(struct run *r, const struct node *first, struct arguments *out);
int run_attribute(struct run *r, const struct value *v, struct text name, struct value *out);
int run_item(struct run *r, const struct value *v, const struct value *key, struct value *out);
int run_slice(struct run *r, const struct value *v, const struct value *start,
              const struct value *stop, const struct value *step, struct value *out);
int run_binary(struct run *r, int op, const struct value *a, const struct value *b,
               struct value *out);
int run_compare(struct run *r, int op, const struct value *a, const struct value *b, bool *out);

/* Tables of what is known by name. */
int run_filter(struct run *r, struct text name, const struct value *in,
               const struct arguments *args, struct value *out);
int run_test(struct run *r, struct text name, const struct value *in, const struct arguments *args,
             bool *out);
int run_function(struct run *r, struct text name, const struct arguments *args, struct value *out);
int run_method(struct run *r, const struct method *m, const struct arguments *args,
               struct value *out);
int run_macro(struct run *r, const struct macro *m, const struct arguments *args,
              struct value *out);
int run_macro_attribute(struct run *r, const struct macro *m, struct text name, struct value *out);
int run_loop_attribute(struct run *r, const struct loop *loop, struct text name, struct value *out);
bool template_has_function(struct text name);
bool template_has_method(enum value_type type, struct text name);
bool template_has_filter(struct text name);
bool template_has_test(struct text name);

/* The argument at place `i` or called `name`; NULL when it was not given. */
const struct value *argument(const struct arguments *args, size_t i, const char *name);
int argument_text(struct run *r, const struct arguments *args, size_t i, const char *name,
                  struct text fallback, struct text *out);
int argument_integer(struct run *r, const struct arguments *args, size_t i, const char *name,
                     int64_t fallback, int64_t *out);
bool argument_true(const struct arguments *args, size_t i, const char *name, bool fallback);

/* ---- values: template_value.c
 * ------------------------------------------------------------------------------- */

bool text_is(struct text t, const char *s);
struct text text_of(const char *s);
struct value value_none(void);
struct value value_bool(bool b);
struct value value_integer(int64_t i);
struct value value_real(double d);
struct value value_text(struct text t);
struct value value_undefined(struct text name);
const char *value_type_word(const struct value *v); /* as Python calls it */

/* Marks a string, or every string of a list. */
void value_mark_safe(struct value *v);

bool value_true(const struct value *v);
bool value_equal(struct run *r, const struct value *a, const struct value *b, int depth);
/* Less than 0, 0, more; HP_EINVAL after run_fail where the two have no order. */
int value_order(struct run *r, const struct value *a, const struct value *b, int *order);
bool value_is_number(const struct value *v); /* booleans are numbers, too */
double value_as_real(const struct value *v);
int64_t value_as_integer(const struct value *v);

int value_new_list(struct run *r, enum list_kind kind, size_t capacity, struct value *out);
int list_push(struct run *r, struct list *l, struct value v);
int value_new_dict(struct run *r, enum value_type type, struct value *out);
bool value_is_key(const struct value *v); /* what Python can hash */
const struct value *dict_get(const struct dict *d, const struct value *key);
const struct value *dict_get_text(const struct dict *d, struct text key);
int dict_set(struct run *r, struct dict *d, struct value key, struct value v);

/* What a `for` would go through: items of a list, keys of a dict, characters of a string. */
int value_items(struct run *r, const struct value *v, struct list **out);
int value_pair_list(struct run *r, const struct dict *d, struct value *out);
int value_copy_text(struct run *r, const struct buffer *b, struct value *out);
int value_from_json(struct run *r, const json_t *j, int depth, struct value *out);

/* As Python's str() and repr(). */
int value_to_text(struct run *r, const struct value *v, struct text *out);
int value_print(struct run *r, const struct value *v, bool quoted, int depth, struct buffer *out);
/* repr() with the keys of dicts in order, as pprint has them. */
int value_print_sorted(struct run *r, const struct value *v, struct buffer *out);
void value_print_real(double d, struct buffer *out);
/* &, <, >, and quotes as HTML spells them. */
void value_print_escaped(struct text t, struct buffer *out);
/* As Python's json.dumps without escaping of what is not ASCII, unless asked for. */
struct json_style {
    int indent;            /* -1: on one line */
    struct text item, key; /* separators */
    bool ascii, sorted;
};
int value_print_json(struct run *r, const struct value *v, const struct json_style *style,
                     int depth, struct buffer *out);

/* ---- text: template_text.c
 * ---------------------------------------------------------------------------------- */

bool text_space(uint32_t c);       /* as Python's str.isspace */
bool text_word(uint32_t c);        /* letter, digit or underscore */
size_t text_length(struct text t); /* in characters */
/* Bytes of characters [start, end). */
struct text text_cut(struct text t, size_t start, size_t end);
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
/* Without the characters of `set` at its ends; white space where `set.data` is NULL. */
struct text text_strip(struct text t, struct text set, int sides);
enum text_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP };
void text_case(struct text t, enum text_case how, struct buffer *out);
/* -1 when it is not there. Bytes. Linear in both, whatever they are. */
int64_t text_find(struct text t, struct text what, size_t from);
/* The last place. HP_ENOMEM gives -2. */
int64_t text_find_last(struct text t, struct text what);
bool text_starts(struct text t, struct text what);
bool text_ends(struct text t, struct text what);

#endif
