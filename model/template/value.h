/* Values of templates as plain data, and what can be told of one without a run. Source of their
 * behaviour: the Jinja 3 documentation, and Python's values (truth, types, keys) as its templates
 * expect. Values point into the arena of their run, into the compiled template or into the caller's
 * variables; nothing but a namespace changes once it is made. */
#ifndef HP_MODEL_TEMPLATE_VALUE_H
#define HP_MODEL_TEMPLATE_VALUE_H

#include "model/template/text.h"

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
struct method; /* names.h */
struct macro;  /* run.h */
struct loop;

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

struct dict_pair {
    struct value key, value;
};

struct dict {
    struct dict_pair *pairs; /* in the order in which keys came */
    size_t n, capacity;
};

/* One turn of a `for`: what the name `loop` stands for within it. */
struct loop {
    struct list *items;
    size_t at;
    int depth; /* of loops around it, from 1 */
};

/* Values of these kinds; texts are not copied. */
struct value value_none(void);
struct value value_bool(bool b);
struct value value_integer(int64_t i);
struct value value_real(double d);
struct value value_text(struct text t);
struct value value_undefined(struct text name);

const char *value_type_word(const struct value *v); /* as Python calls the type */
bool value_true(const struct value *v);             /* as Python's bool() */
bool value_is_number(const struct value *v);        /* booleans are numbers, too */
/* Of numbers only. */
double value_as_real(const struct value *v);
int64_t value_as_integer(const struct value *v);

/* Marks a string, or every string of a list. */
void value_mark_safe(struct value *v);

bool value_is_key(const struct value *v); /* what Python can hash */
/* The pair or the value under a key; NULL when there is none. */
struct dict_pair *dict_find(const struct dict *d, const struct value *key);
const struct value *dict_get(const struct dict *d, const struct value *key);
const struct value *dict_get_text(const struct dict *d, struct text key);

#endif
