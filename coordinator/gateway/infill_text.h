/* The texts of a gap that is to be filled in, as models learn them: what stands before it and
 * behind it, and pieces of other files before all of it. Only prompt.c includes this. Any thread.
 */
#ifndef HP_COORDINATOR_GATEWAY_INFILL_TEXT_H
#define HP_COORDINATOR_GATEWAY_INFILL_TEXT_H

#include <jansson.h>

#include "common/bytes.h"
#include "common/status.h"
#include "model/tokenizer/tokenizer.h"

struct infill_text {
    struct buffer text;
    struct buffer literal; /* struct text_span of it: whatever spells a mark there is text */
};
void infill_text_free(struct infill_text *t);

/* Of a body's "input_prefix" and "input_suffix". HP_EUNSUPPORTED: the vocabulary marks no gaps. */
int infill_text_gap(const json_t *root, const struct tokenizer *t, struct infill_text *out,
                    struct err *e);
/* Of "input_extra", a list of {"filename", "text"}: as many of the last ones as have `most_bytes`.
 * Nothing where there are none. HP_ENOMEM. */
int infill_text_files(const json_t *root, const struct tokenizer *t, size_t most_bytes,
                      struct infill_text *out, struct err *e);

#endif
