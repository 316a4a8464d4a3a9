/* `hpctl model describe|tokenize|detokenize|render`: what a model file is and says, without a
 * cluster. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "hpctl/model_describe.h"
#include "hpctl/verbs.h"
#include "model/model.h"

/* ---- pieces of JSON
 * -------------------------------------------------------------------------------------------- */

static json_t *ids_json(const struct buffer *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; i + sizeof(uint32_t) <= ids->size; i += sizeof(uint32_t)) {
        uint32_t id;
        memcpy(&id, ids->data + i, sizeof id);
        json_array_append_new(list, json_integer(id));
    }
    return list;
}

/* {"text": …}, or an error where the text is not UTF-8. */
static int text_json(const struct buffer *text, json_t **out, struct err *e)
{
    if (text->failed)
        return err_set(e, HP_ENOMEM, "out of memory for the text");
    json_t *s = json_stringn(text->data ? (const char *)text->data : "", text->size);
    if (!s)
        return err_set(e, HP_EINVAL, "the text is not UTF-8");
    *out = json_object();
    json_object_set_new(*out, "text", s);
    return 0;
}

static int ids_from_json(const json_t *list, struct buffer *out, struct err *e)
{
    if (!json_is_array(list))
        return err_set(e, HP_EINVAL, "expected a list of token ids");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id > UINT32_MAX)
            return err_set(e, HP_EINVAL, "item %zu of the list is not a token id", i);
        uint32_t narrow = (uint32_t)id;
        buffer_append(out, &narrow, sizeof narrow);
    }
    return out->failed ? err_set(e, HP_ENOMEM, "out of memory for %zu ids", json_array_size(list))
                       : 0;
}

/* "1,2,3", as `model tokenize` prints them. */
static int ids_from_text(const char *text, struct buffer *out, struct err *e)
{
    while (*text) {
        char *end;
        errno = 0;
        unsigned long long id = strtoull(text, &end, 10);
        if (end == text || *text == '-' || errno || id > UINT32_MAX || (*end && *end != ',') ||
            (*end == ',' && !end[1]))
            return err_set(e, HP_EUSAGE, "--ids: \"%.40s\" does not begin with a token id", text);
        uint32_t narrow = (uint32_t)id;
        buffer_append(out, &narrow, sizeof narrow);
        text = *end ? end + 1 : end;
    }
    return out->failed ? err_set(e, HP_ENOMEM, "out of memory for the ids") : 0;
}

/* ---- the three conversions: an input value to an object
 * -------------------------------------------------------- */

struct conversion {
    struct model *model;
    const struct tokenizer *tokenizer;
    bool add_special;           /* of tokenize */
    bool add_generation_prompt; /* of render, where the input does not say */
};
typedef int (*convert_fn)(const struct conversion *c, const json_t *input, json_t **out,
                          struct err *e);

static int tokenize_bytes(const struct conversion *c, const char *text, size_t size, json_t **out,
                          struct err *e)
{
    struct buffer ids = {0};
    int rc = tokenizer_encode(c->tokenizer, text, size, c->add_special, &ids, e);
    if (rc == 0 && ids.failed)
        rc = err_set(e, HP_ENOMEM, "out of memory for the ids");
    if (rc == 0) {
        *out = json_object();
        json_object_set_new(*out, "ids", ids_json(&ids));
    }
    buffer_free(&ids);
    return rc;
}

static int tokenize(const struct conversion *c, const json_t *input, json_t **out, struct err *e)
{
    if (!json_is_string(input))
        return err_set(e, HP_EINVAL, "expected a string");
    return tokenize_bytes(c, json_string_value(input), json_string_length(input), out, e);
}

static int detokenize_ids(const struct conversion *c, const struct buffer *ids, json_t **out,
                          struct err *e)
{
    struct buffer text = {0};
    static const uint32_t none[1];
    const uint32_t *first = ids->data ? (const uint32_t *)(const void *)ids->data : none;
    int rc = tokenizer_decode(c->tokenizer, first, ids->size / sizeof(uint32_t), &text, e);
    rc = rc < 0 ? rc : text_json(&text, out, e);
    buffer_free(&text);
    return rc;
}

static int detokenize(const struct conversion *c, const json_t *input, json_t **out, struct err *e)
{
    struct buffer ids = {0};
    int rc = ids_from_json(input, &ids, e);
    rc = rc < 0 ? rc : detokenize_ids(c, &ids, out, e);
    buffer_free(&ids);
    return rc;
}

/* An object's members beside its messages are variables of the template, such as tools. */
static json_t *extra_variables(const json_t *input)
{
    if (!json_is_object(input))
        return NULL;
    json_t *extra = json_copy((json_t *)input);
    json_object_del(extra, "messages");
    json_object_del(extra, "add_generation_prompt");
    return extra;
}

static int render_text(const struct conversion *c, const json_t *input, struct buffer *text,
                       struct err *e)
{
    const json_t *messages = json_is_object(input) ? json_object_get(input, "messages") : input;
    if (!json_is_array(messages))
        return err_set(e, HP_EINVAL, "expected a list of messages, or an object with \"messages\"");
    const json_t *prompt =
        json_is_object(input) ? json_object_get(input, "add_generation_prompt") : NULL;
    if (prompt && !json_is_boolean(prompt))
        return err_set(e, HP_EINVAL, "\"add_generation_prompt\" is not true or false");
    json_t *extra = extra_variables(input);
    int rc =
        model_chat_render(c->model, messages,
                          prompt ? json_is_true(prompt) : c->add_generation_prompt, extra, text, e);
    json_decref(extra);
    return rc;
}

static int render(const struct conversion *c, const json_t *input, json_t **out, struct err *e)
{
    struct buffer text = {0}, ids = {0};
    json_t *o = NULL;
    int rc = render_text(c, input, &text, e);
    rc = rc < 0 ? rc : text_json(&text, &o, e);
    rc = rc < 0 ? rc
                : tokenizer_encode(c->tokenizer, text.data ? (const char *)text.data : "",
                                   text.size, false, &ids, e);
    if (rc == 0 && ids.failed)
        rc = err_set(e, HP_ENOMEM, "out of memory for the ids");
    if (rc == 0)
        json_object_set_new(o, "ids", ids_json(&ids));
    else
        json_decref(o);
    buffer_free(&text);
    buffer_free(&ids);
    if (rc == 0)
        *out = o;
    return rc;
}

/* ---- one value a line
 * ------------------------------------------------------------------------------------------ */

static int convert_line(const struct conversion *c, convert_fn convert, const char *line,
                        size_t size, json_t **out, struct err *e)
{
    json_error_t problem;
    json_t *input =
        json_loadb(line, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &problem);
    if (!input)
        return err_set(e, HP_EPARSE, "not valid JSON: %s", problem.text);
    int rc = convert(c, input, out, e);
    json_decref(input);
    return rc;
}

static json_t *error_json(const struct err *e)
{
    json_t *text = json_string(e->text), *o = json_object();
    json_object_set_new(o, "error", text ? text : json_string(status_word(e->code)));
    return o;
}

static int convert_lines(const struct conversion *c, convert_fn convert, struct err *e)
{
    char *line = NULL;
    size_t capacity = 0;
    bool bad = false;
    for (ssize_t n; !bad && (n = getline(&line, &capacity, stdin)) >= 0;) {
        struct err problem = {0};
        json_t *out = NULL;
        if (convert_line(c, convert, line, (size_t)n, &out, &problem) < 0)
            out = error_json(&problem);
        bad = json_dumpf(out, stdout, JSON_COMPACT) < 0 || putchar('\n') == EOF ||
              fflush(stdout) != 0;
        json_decref(out);
    }
    bool unread = ferror(stdin) != 0;
    free(line);
    return bad || unread
               ? err_set(e, HP_EIO, "standard %s: %s", bad ? "output" : "input", strerror(errno))
               : 0;
}

/* ---- output of one value
 * --------------------------------------------------------------------------------------- */

/* JSON where it was asked for; otherwise the text as it is, or the ids in the form that --ids
 * takes. */
static int print_result(const struct invocation *in, json_t *result, struct err *e)
{
    if (in->json || in->output)
        return invocation_print_json(in, result, e);
    const json_t *text = json_object_get(result, "text"), *ids = json_object_get(result, "ids");
    if (text) {
        fwrite(json_string_value(text), 1, json_string_length(text), stdout);
        putchar('\n');
    } else {
        for (size_t i = 0; i < json_array_size(ids); i++)
            printf(i ? ",%lld" : "%lld", (long long)json_integer_value(json_array_get(ids, i)));
        putchar('\n');
    }
    json_decref(result);
    return ferror(stdout) ? err_set(e, HP_EIO, "standard output: %s", strerror(errno)) : 0;
}

static int read_file(const char *path, struct buffer *out, struct err *e)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *f = standard ? stdin : fopen(path, "rb");
    if (!f)
        return err_set(e, errno == ENOENT ? HP_ENOENT : HP_EIO, "%s: %s", path, strerror(errno));
    enum { STEP_BYTES = 1 << 16 };
    size_t got = STEP_BYTES;
    while (got == STEP_BYTES && !out->failed) {
        uint8_t *p = buffer_extend(out, STEP_BYTES);
        got = p ? fread(p, 1, STEP_BYTES, f) : 0;
        out->size -= p ? STEP_BYTES - got : 0;
    }
    int rc = ferror(f) ? err_set(e, HP_EIO, "%s: %s", path, strerror(errno)) : 0;
    if (rc == 0 && out->failed)
        rc = err_set(e, HP_ENOMEM, "%s: out of memory", path);
    if (!standard)
        fclose(f);
    return rc;
}

/* ---- the verbs
 * -------------------------------------------------------------------------------------------------
 */

/* Exactly one of the options that give the input. */
static int one_input(const struct invocation *in, const char *const *names, struct err *e)
{
    int given = 0;
    char list[96] = "";
    for (int i = 0; names[i]; i++) {
        given += invocation_option(in, names[i]) != NULL;
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s--%s", i ? ", " : "", names[i]);
    }
    if (given == 1)
        return 0;
    err_set(e, HP_EUSAGE, "hpctl %s needs exactly one of %s", in->command->path, list);
    return err_hint(e, "see `hpctl %s --help`", in->command->path);
}

static int open_text(const struct invocation *in, struct conversion *c, struct err *e)
{
    int rc = model_open_text(in->arguments[0], &c->model, e);
    if (rc < 0)
        return rc;
    rc = model_tokenizer(c->model, &c->tokenizer, e);
    if (rc < 0)
        model_close(&c->model);
    return rc;
}

static int run_tokenize(struct invocation *in, struct err *e)
{
    static const char *const inputs[] = {"text", "file", "jsonl", NULL};
    struct conversion c = {.add_special = !invocation_flag(in, "no-special")};
    const char *text = invocation_option(in, "text"), *file = invocation_option(in, "file");
    int rc = one_input(in, inputs, e);
    rc = rc < 0 ? rc : open_text(in, &c, e);
    if (rc < 0)
        return rc;
    struct buffer bytes = {0};
    json_t *result = NULL;
    if (invocation_flag(in, "jsonl")) {
        rc = convert_lines(&c, tokenize, e);
    } else {
        rc = file ? read_file(file, &bytes, e) : 0;
        if (rc == 0)
            rc = tokenize_bytes(&c,
                                !file        ? text
                                : bytes.data ? (const char *)bytes.data
                                             : "",
                                file ? bytes.size : strlen(text), &result, e);
        rc = rc < 0 ? rc : print_result(in, result, e);
    }
    buffer_free(&bytes);
    model_close(&c.model);
    return rc;
}

static int run_detokenize(struct invocation *in, struct err *e)
{
    static const char *const inputs[] = {"ids", "jsonl", NULL};
    struct conversion c = {0};
    int rc = one_input(in, inputs, e);
    rc = rc < 0 ? rc : open_text(in, &c, e);
    if (rc < 0)
        return rc;
    struct buffer ids = {0};
    json_t *result = NULL;
    if (invocation_flag(in, "jsonl")) {
        rc = convert_lines(&c, detokenize, e);
    } else {
        rc = ids_from_text(invocation_option(in, "ids"), &ids, e);
        rc = rc < 0 ? rc : detokenize_ids(&c, &ids, &result, e);
        rc = rc < 0 ? rc : print_result(in, result, e);
    }
    buffer_free(&ids);
    model_close(&c.model);
    return rc;
}

static int run_render(struct invocation *in, struct err *e)
{
    static const char *const inputs[] = {"messages", "jsonl", NULL};
    struct conversion c = {.add_generation_prompt = invocation_flag(in, "add-generation-prompt")};
    int rc = one_input(in, inputs, e);
    rc = rc < 0 ? rc : open_text(in, &c, e);
    if (rc < 0)
        return rc;
    json_t *messages = NULL, *result = NULL;
    struct json_at at;
    if (invocation_flag(in, "jsonl")) {
        rc = convert_lines(&c, render, e);
    } else {
        rc = json_load_at(invocation_option(in, "messages"), &messages, &at, e);
        rc = rc < 0 ? rc : render(&c, messages, &result, e);
        rc = rc < 0 ? rc : print_result(in, result, e);
    }
    json_decref(messages);
    model_close(&c.model);
    return rc;
}

#define JSONL_OPTION                                                                               \
    {                                                                                              \
        "jsonl", NULL, "one JSON value a line from standard input, one object a line out", 0       \
    }

static const struct command_option tokenize_options[] = {
    {"text", "T", "the text", 0},
    {"file", "F|-", "a file with the text, - for standard input", 0},
    {"no-special", NULL, "add no tokens of the tokenizer's own, such as a first BOS", 0},
    JSONL_OPTION,
    {0},
};
static const struct command_option detokenize_options[] = {
    {"ids", "1,2", "the token ids", 0},
    JSONL_OPTION,
    {0},
};
static const struct command_option render_options[] = {
    {"messages", "F|-",
     "a JSON file with a list of messages, or an object with messages; - for standard input", 0},
    {"add-generation-prompt", NULL, "end with the opening of the assistant's turn", 0},
    JSONL_OPTION,
    {0},
};

const struct command model_verbs[] = {
    {"model describe", "MODEL", 1, 1,
     "what a model file is: architecture, sizes, tensors, tokenizer, template, layers",
     "MODEL is a GGUF file or a Hugging Face folder. Only headers are read, so it takes no time at "
     "any size.",
     "  hpctl model describe demo-q8_0.gguf\n  hpctl model describe ./Llama-3.2-1B -o json", NULL,
     model_describe_run, false},
    {"model tokenize", "MODEL", 1, 1, "text to token ids",
     "Special tokens spelled out in the text are recognised either way. With --jsonl a line is a "
     "JSON string, and the output\n"
     "{\"ids\": [1, 2]} or {\"error\": \"...\"}.",
     "  hpctl model tokenize demo-q8_0.gguf --text \"Hello\" -o json\n  hpctl model tokenize "
     "./Llama-3.2-1B --no-special --file "
     "notes.txt",
     tokenize_options, run_tokenize, false},
    {"model detokenize", "MODEL", 1, 1, "token ids to text",
     "Special tokens are written as text; bytes that are not UTF-8 become U+FFFD; ids that the "
     "tokenizer does not have give "
     "nothing.\n"
     "With --jsonl a line is a JSON list of ids.",
     "  hpctl model detokenize demo-q8_0.gguf --ids 1,2", detokenize_options, run_detokenize,
     false},
    {"model render", "MODEL", 1, 1,
     "messages to the prompt that the model's chat template makes of them",
     "With --jsonl a line is a list of messages, or an object with \"messages\" and "
     "\"add_generation_prompt\"; other members of "
     "an object\n"
     "are variables of the template. The ids are what the chat endpoint feeds to the model.",
     "  echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | hpctl model render demo-q8_0.gguf "
     "--messages - "
     "--add-generation-prompt",
     render_options, run_render, false},
    {0},
};
