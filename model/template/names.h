/* Methods that values have, by type and name: what exists, apart from what it does (methods.c), so
 * that looking an attribute up needs no code of methods. */
#ifndef HP_MODEL_TEMPLATE_NAMES_H
#define HP_MODEL_TEMPLATE_NAMES_H

#include "model/template/value.h"

enum method_id {
    METHOD_NONE,
    /* of strings */
    METHOD_STRIP,
    METHOD_LSTRIP,
    METHOD_RSTRIP,
    METHOD_UPPER,
    METHOD_LOWER,
    METHOD_TITLE,
    METHOD_CAPITALIZE,
    METHOD_SWAPCASE,
    METHOD_STARTSWITH,
    METHOD_ENDSWITH,
    METHOD_SPLIT,
    METHOD_RSPLIT,
    METHOD_SPLITLINES,
    METHOD_PARTITION,
    METHOD_RPARTITION,
    METHOD_REPLACE,
    METHOD_FORMAT,
    METHOD_FIND,
    METHOD_RFIND,
    METHOD_INDEX,
    METHOD_RINDEX,
    METHOD_COUNT,
    METHOD_JOIN,
    METHOD_LJUST,
    METHOD_RJUST,
    METHOD_CENTER,
    METHOD_ZFILL,
    METHOD_ISDIGIT,
    METHOD_ISDECIMAL,
    METHOD_ISNUMERIC,
    METHOD_ISALPHA,
    METHOD_ISALNUM,
    METHOD_ISSPACE,
    METHOD_ISASCII,
    METHOD_ISUPPER,
    METHOD_ISLOWER,
    METHOD_REMOVEPREFIX,
    METHOD_REMOVESUFFIX,
    /* of dicts */
    METHOD_ITEMS,
    METHOD_KEYS,
    METHOD_VALUES,
    METHOD_GET,
    /* of lists */
    METHOD_LIST_INDEX,
    METHOD_LIST_COUNT,
    /* of a loop, whose value is the number of its turn */
    METHOD_CYCLE,
    METHODS
};

/* A method of one value, ready to be called. */
struct method {
    struct value self;
    enum method_id id;
};

/* METHOD_NONE where values of that type have no method of that name. */
enum method_id method_named(enum value_type type, struct text name);

#endif
