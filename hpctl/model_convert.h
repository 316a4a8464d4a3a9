/* `hpctl model tokenize|detokenize|render`: one input value of JSON becomes an object. */
#ifndef HP_HPCTL_MODEL_CONVERT_H
#define HP_HPCTL_MODEL_CONVERT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/bytes.h"
#include "common/status.h"
#include "model/model.h"

struct model_conversion {
    struct model *model;
    const struct tokenizer *tokenizer;
    bool add_special;           /* of tokenize */
    bool add_generation_prompt; /* of render, where the input does not say */
};
typedef int (*model_convert_fn)(const struct model_conversion *c, const json_t *input, json_t **out,
                                struct err *e);

/* {"text"} or a string: {"ids"}. */
int model_tokenize(const struct model_conversion *c, const json_t *input, json_t **out,
                   struct err *e);
int model_tokenize_bytes(const struct model_conversion *c, const char *text, size_t size,
                         json_t **out, struct err *e);
/* A list of ids: {"text"}. */
int model_detokenize(const struct model_conversion *c, const json_t *input, json_t **out,
                     struct err *e);
int model_detokenize_ids(const struct model_conversion *c, const struct buffer *ids, json_t **out,
                         struct err *e);
/* {"messages", ...}: {"text"}, by the model's chat template. */
int model_render(const struct model_conversion *c, const json_t *input, json_t **out,
                 struct err *e);

/* "1,2,3" as u32 each. */
int model_ids_from_text(const char *text, struct buffer *out, struct err *e);

#endif
