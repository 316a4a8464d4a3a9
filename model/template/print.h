/* Values as text: Python's str() and repr(), and JSON. Printing appends to a buffer, which is
 * bounded by the run's output; HP_ELIMIT beyond that and beyond a depth of 200. */
#ifndef HP_MODEL_TEMPLATE_PRINT_H
#define HP_MODEL_TEMPLATE_PRINT_H

#include "model/template/run.h"

/* str(); a string is not copied. */
int value_to_text(struct run *r, const struct value *v, struct text *out);
/* str(), or repr() where `quoted`. `depth` is 0 but for parts of a value. */
int value_print(struct run *r, const struct value *v, bool quoted, int depth, struct buffer *out);
/* repr() with the keys of dicts in order, as pprint has them. */
int value_print_sorted(struct run *r, const struct value *v, struct buffer *out);
/* The shortest digits that read back as the same number. */
void value_print_real(double d, struct buffer *out);
/* &, <, >, and quotes as HTML spells them. */
void value_print_escaped(struct text t, struct buffer *out);

/* As Python's json.dumps, without escaping of what is not ASCII unless asked for. */
struct json_style {
    int indent;            /* -1: on one line */
    struct text item, key; /* separators */
    bool ascii, sorted;
};
int value_print_json(struct run *r, const struct value *v, const struct json_style *style,
                     int depth, struct buffer *out);

#endif
