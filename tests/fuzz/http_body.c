/* Bodies of completion requests, and the grammars that they ask for: any bytes from a client. What
 * is refused must be told in valid JSON, whatever it quotes. */
#include <stdlib.h>

#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/llama_settings.h"
#include "coordinator/gateway/openai_body.h"
#include "coordinator/gateway/openai_grammar.h"
#include "coordinator/gateway/openai_json.h"

/* What was read is told in JSON, too. */
static void settings_tell(const struct openai_body *b)
{
    struct buffer text = {0};
    llama_settings_write(b, &text);
    json_t *told = json_loadb((const char *)text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
    if (!told)
        abort();
    json_decref(told);
    buffer_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct dialect *const dialects[] = {
        &dialect_openai,   &dialect_openai,    &dialect_ollama_chat, &dialect_ollama_generate,
        &dialect_messages, &dialect_responses, &dialect_llama,       &dialect_llama_infill};
    for (int i = 0; i < 8; i++) {
        struct openai_body *b = NULL;
        const char *param;
        struct err e = {0};
        struct buffer text = {0};
        if (openai_body_read((const char *)data, size, dialects[i]->translate, i > 0, &b, &param,
                             &e) == 0) {
            openai_json_error(&text, 404, b->model, NULL, NULL);
            settings_tell(b);
            openai_body_check_told(b, i > 5, &param, &e);
            if (response_fields_read(b->root, &b->fields, &param, &e) == 0)
                response_fields_pick(&b->fields, &text, 0);
            if (b->structured)
                openai_grammar_make(b->root, &b->sampling.grammar, &param, &e);
            openai_body_drop_prompt(b);
            openai_body_destroy(&b);
        } else {
            openai_json_error(&text, 400, e.text, param, NULL);
        }
        json_t *told = json_loadb((const char *)text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
        if (!told)
            abort();
        json_decref(told);
        buffer_free(&text);
    }
    /* Any bytes as a text. */
    struct buffer text = {0};
    struct openai_head h = {.id = "x", .model = "m", .chat = true};
    openai_event_text(&text, &h, 0, (const char *)data, size);
    json_t *chunk = json_loadb((const char *)text.data + 6, text.size - 8, JSON_ALLOW_NUL, NULL);
    if (!chunk)
        abort();
    json_decref(chunk);
    buffer_free(&text);
    return 0;
}
