#include "model/template/names.h"

static const struct {
    enum value_type type;
    const char *name;
    enum method_id id;
} names[] = {
    {VALUE_STRING, "strip", METHOD_STRIP},
    {VALUE_STRING, "lstrip", METHOD_LSTRIP},
    {VALUE_STRING, "rstrip", METHOD_RSTRIP},
    {VALUE_STRING, "upper", METHOD_UPPER},
    {VALUE_STRING, "lower", METHOD_LOWER},
    {VALUE_STRING, "title", METHOD_TITLE},
    {VALUE_STRING, "capitalize", METHOD_CAPITALIZE},
    {VALUE_STRING, "swapcase", METHOD_SWAPCASE},
    {VALUE_STRING, "startswith", METHOD_STARTSWITH},
    {VALUE_STRING, "endswith", METHOD_ENDSWITH},
    {VALUE_STRING, "split", METHOD_SPLIT},
    {VALUE_STRING, "rsplit", METHOD_RSPLIT},
    {VALUE_STRING, "splitlines", METHOD_SPLITLINES},
    {VALUE_STRING, "partition", METHOD_PARTITION},
    {VALUE_STRING, "rpartition", METHOD_RPARTITION},
    {VALUE_STRING, "replace", METHOD_REPLACE},
    {VALUE_STRING, "format", METHOD_FORMAT},
    {VALUE_STRING, "find", METHOD_FIND},
    {VALUE_STRING, "rfind", METHOD_RFIND},
    {VALUE_STRING, "index", METHOD_INDEX},
    {VALUE_STRING, "rindex", METHOD_RINDEX},
    {VALUE_STRING, "count", METHOD_COUNT},
    {VALUE_STRING, "join", METHOD_JOIN},
    {VALUE_STRING, "ljust", METHOD_LJUST},
    {VALUE_STRING, "rjust", METHOD_RJUST},
    {VALUE_STRING, "center", METHOD_CENTER},
    {VALUE_STRING, "zfill", METHOD_ZFILL},
    {VALUE_STRING, "isdigit", METHOD_ISDIGIT},
    {VALUE_STRING, "isdecimal", METHOD_ISDECIMAL},
    {VALUE_STRING, "isnumeric", METHOD_ISNUMERIC},
    {VALUE_STRING, "isalpha", METHOD_ISALPHA},
    {VALUE_STRING, "isalnum", METHOD_ISALNUM},
    {VALUE_STRING, "isspace", METHOD_ISSPACE},
    {VALUE_STRING, "isascii", METHOD_ISASCII},
    {VALUE_STRING, "isupper", METHOD_ISUPPER},
    {VALUE_STRING, "islower", METHOD_ISLOWER},
    {VALUE_STRING, "removeprefix", METHOD_REMOVEPREFIX},
    {VALUE_STRING, "removesuffix", METHOD_REMOVESUFFIX},
    {VALUE_DICT, "items", METHOD_ITEMS},
    {VALUE_DICT, "keys", METHOD_KEYS},
    {VALUE_DICT, "values", METHOD_VALUES},
    {VALUE_DICT, "get", METHOD_GET},
    {VALUE_LIST, "index", METHOD_LIST_INDEX},
    {VALUE_LIST, "count", METHOD_LIST_COUNT},
};

enum method_id method_named(enum value_type type, struct text name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].type == type && text_is(name, names[i].name))
            return names[i].id;
    return METHOD_NONE;
}
