/* What the files of schemas share, from bottom to top:
 *
 *     schema_merge.c    $ref, and two schemas as one
 *     schema_holds.c    whether a schema holds of a value, or of no value that another holds of
 *     schema_strings.c, schema_arrays.c, schema_objects.c    one type each
 *     schema.c          what a schema says, as expressions; the face
 */
#ifndef HP_MODEL_GRAMMAR_SCHEMA_INT_H
#define HP_MODEL_GRAMMAR_SCHEMA_INT_H

#include "common/map.h"
#include "model/grammar/schema.h"

struct schema_rule { /* a schema that has become a rule, by its text */
    uint32_t rule;
    UT_hash_handle hh;
    char text[];
};

struct schema_reader {
    struct json_text *text;
    struct expressions *x; /* of text */
    const json_t *root;
    const char *field;
    struct schema_rule *rules;
    json_t *kept; /* array: schemas that were made */
    size_t bytes, parts, work;
    int depth;
    int status;
    struct err *e;
};

/* The first failure counts; the text begins with field and path. Gives NULL. */
void *schema_fail(struct schema_reader *r, int code, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Counts what is looked at, some of which grows with the square of a schema and faster. False: that
 * was too much, and failed. */
bool schema_work(struct schema_reader *r, size_t n);
/* json_equal, counted; false as well where it failed. */
bool schema_same(struct schema_reader *r, const json_t *a, const json_t *b);

/* The schema that is meant, without $ref and allOf: itself, or one that is made. NULL: failed. */
const json_t *schema_resolve(struct schema_reader *r, const json_t *schema, const char *path);
/* Both at once, where `b` does not see what `a` says (unevaluatedProperties). NULL: failed. */
const json_t *schema_both(struct schema_reader *r, const json_t *a, const json_t *b,
                          const char *path);
/* A copy (shallow) without some members, kept by the reader; `names` ends with NULL. */
json_t *schema_without(struct schema_reader *r, const json_t *schema, const char *const *names);
bool schema_is_type(const json_t *schema, const char *type); /* whether it allows it */
/* Whether an object must have a member of that name. */
bool schema_requires(const json_t *schema, const char *name);

enum schema_truth { SCHEMA_NO, SCHEMA_YES, SCHEMA_UNKNOWN };
enum schema_truth schema_holds(struct schema_reader *r, const json_t *schema, const json_t *value,
                               int depth);
/* Whether it is certain that no value is of both. */
bool schema_apart(struct schema_reader *r, const json_t *a, const json_t *b, const char *path,
                  int depth);

/* A whole number that is not negative, or `fallback` where it is missing; -2: it is something else,
 * and failed. */
int64_t schema_count(struct schema_reader *r, const json_t *schema, const char *key,
                     int64_t fallback, const char *path);

/* Of a resolved schema without enum, const, anyOf and oneOf. NULL without a failure: no value of
 * the type. `part` makes an expression of a schema within it. */
typedef const struct expression *(*schema_part_fn)(struct schema_reader *r, const json_t *schema,
                                                   const char *path);
const struct expression *schema_string(struct schema_reader *r, const json_t *schema,
                                       const char *path);
const struct expression *schema_array(struct schema_reader *r, const json_t *schema,
                                      const char *path, schema_part_fn part);
const struct expression *schema_object(struct schema_reader *r, const json_t *schema,
                                       const char *path, schema_part_fn part);

#endif
