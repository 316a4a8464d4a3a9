/* Bodies of texts, tokens and templates. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/body_measure.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/ollama_body.h"
#include "coordinator/gateway/openai_prompts.h"
#include "coordinator/gateway/text_api_int.h"

static int read_ids(struct text_call *c, struct err *e)
{
    const json_t *list = json_object_get(c->body->root, "tokens");
    int rc = body_ids_take(&c->body->ids, BODY_IDS_WHOLE, list, &c->ids, &c->n_ids);
    return rc == HP_ENOMEM ? err_set(e, rc, "out of memory for a request")
           : rc < 0 ? body_field_refuse(&c->param, "tokens", e, "must be a list of token ids")
                    : 0;
}

/* vLLM adds the tokenizer's own tokens to a text unless it is told not to, llama-server the other
 * way round, as both with messages: each with a field of its own. */
static int read_tokenize(struct text_call *c, struct err *e)
{
    struct openai_body *b = c->body;
    json_t *content = json_object_get(b->root, "content");
    const char *adds = content ? "add_special" : "add_special_tokens";
    const json_t *special = json_object_get(b->root, "parse_special");
    bool asked, parses;
    int rc = 0;
    if (content && !json_object_get(b->root, "prompt") &&
        json_object_set(b->root, "prompt", content) < 0)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    if ((rc = body_field_flag(b->root, adds, &asked, &c->param, e)) < 0 ||
        (rc = body_field_flag(b->root, "parse_special", &parses, &c->param, e)) < 0 ||
        (rc = body_field_flag(b->root, "return_token_strs", &c->with_strings, &c->param, e)) < 0 ||
        (rc = body_field_flag(b->root, "with_pieces", &c->with_pieces, &c->param, e)) < 0)
        return rc;
    const json_t *said = json_object_get(b->root, adds);
    b->literal_specials = special && !json_is_null(special) && !parses;
    b->chat = json_object_get(b->root, "messages") != NULL;
    b->adds_special = said && !json_is_null(said) ? asked : !content && !b->chat;
    const json_t *text = json_object_get(b->root, "prompt");
    c->empty = !b->chat && json_is_string(text) && !json_string_length(text);
    if (c->empty)
        return 0;
    rc = openai_prompts_read(b, &c->param, e);
    return rc == 0 && b->n_prompts > 1
               ? body_field_refuse(&c->param, "prompt", e, "is one text here, not several")
               : rc;
}

int text_body_read(struct text_call *c, struct err *e)
{
    struct openai_body *b = c->body = calloc(1, sizeof *b);
    if (!b)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    b->ids.field = c->task == TEXT_DETOKENIZE ? "tokens"
                   : c->task == TEXT_TOKENIZE ? "prompt"
                                              : NULL;
    b->values_left = BODY_MAX_COST;
    int rc = body_measure_load_within(buffer_cstr(&c->raw), c->raw.size, &b->ids, &b->values_left,
                                      &b->root, &c->param, e);
    if (rc < 0)
        return rc;
    if (!json_is_object(b->root))
        return err_set(e, HP_EINVAL, "the body is not a JSON object");
    bool chat = true;
    if (c->task == TEXT_COUNT &&
        (rc = dialect_messages.translate(&b->root, &chat, &c->param, e)) < 0)
        return rc;
    if (text_speaks_ollama(c) && ollama_name_read(b->root) < 0)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    const json_t *model = json_object_get(b->root, "model");
    if (model && !json_is_null(model) && !json_is_string(model))
        return body_field_refuse(&c->param, "model", e, "is not a text");
    if (json_is_string(model) && !(b->model = strdup(json_string_value(model))))
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    b->chat = c->task == TEXT_TEMPLATE || c->task == TEXT_COUNT;
    rc = text_speaks_ollama(c)        ? 0
         : c->task == TEXT_DETOKENIZE ? read_ids(c, e)
         : c->task == TEXT_TOKENIZE   ? read_tokenize(c, e)
                                      : openai_prompts_read(b, &c->param, e);
    b->holds_calls = false; /* nothing is answered, whatever the model's template can have called */
    return rc;
}
