/* `hpctl model describe|tokenize|detokenize|render`: what a model file is and says, without a
 * cluster. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fs.h"
#include "common/json.h"
#include "hpctl/model_convert.h"
#include "hpctl/model_describe.h"
#include "hpctl/verbs.h"
#include "model/model.h"

/* ---- one value a line ---- */

static int convert_line(const struct model_conversion *c, model_convert_fn convert,
                        const char *line, size_t size, json_t **out, struct err *e)
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

static int convert_lines(const struct model_conversion *c, model_convert_fn convert, struct err *e)
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

/* ---- output of one value ---- */

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

enum { INPUT_MAX_BYTES = 1 << 30 };

/* ---- the verbs ---- */

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

static int open_text(const struct invocation *in, struct model_conversion *c, struct err *e)
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
    struct model_conversion c = {.add_special = !invocation_flag(in, "no-special")};
    const char *text = invocation_option(in, "text"), *file = invocation_option(in, "file");
    int rc = one_input(in, inputs, e);
    if (rc == 0)
        rc = open_text(in, &c, e);
    if (rc < 0)
        return rc;
    struct buffer bytes = {0};
    json_t *result = NULL;
    if (invocation_flag(in, "jsonl")) {
        rc = convert_lines(&c, model_tokenize, e);
    } else {
        rc = file ? fs_input_read(file, INPUT_MAX_BYTES, &bytes, e) : 0;
        if (rc == 0)
            rc = model_tokenize_bytes(&c,
                                      !file        ? text
                                      : bytes.data ? (const char *)bytes.data
                                                   : "",
                                      file ? bytes.size : strlen(text), &result, e);
        if (rc == 0)
            rc = print_result(in, result, e);
    }
    buffer_free(&bytes);
    model_close(&c.model);
    return rc;
}

static int run_detokenize(struct invocation *in, struct err *e)
{
    static const char *const inputs[] = {"ids", "jsonl", NULL};
    struct model_conversion c = {0};
    int rc = one_input(in, inputs, e);
    if (rc == 0)
        rc = open_text(in, &c, e);
    if (rc < 0)
        return rc;
    struct buffer ids = {0};
    json_t *result = NULL;
    if (invocation_flag(in, "jsonl")) {
        rc = convert_lines(&c, model_detokenize, e);
    } else {
        rc = model_ids_from_text(invocation_option(in, "ids"), &ids, e);
        if (rc == 0)
            rc = model_detokenize_ids(&c, &ids, &result, e);
        if (rc == 0)
            rc = print_result(in, result, e);
    }
    buffer_free(&ids);
    model_close(&c.model);
    return rc;
}

static int run_render(struct invocation *in, struct err *e)
{
    static const char *const inputs[] = {"messages", "jsonl", NULL};
    struct model_conversion c = {.add_generation_prompt =
                                     invocation_flag(in, "add-generation-prompt")};
    int rc = one_input(in, inputs, e);
    if (rc == 0)
        rc = open_text(in, &c, e);
    if (rc < 0)
        return rc;
    json_t *messages = NULL, *result = NULL;
    struct json_at at;
    if (invocation_flag(in, "jsonl")) {
        rc = convert_lines(&c, model_render, e);
    } else {
        rc = json_load_at(invocation_option(in, "messages"), &messages, &at, e);
        if (rc == 0)
            rc = model_render(&c, messages, &result, e);
        if (rc == 0)
            rc = print_result(in, result, e);
    }
    json_decref(messages);
    model_close(&c.model);
    return rc;
}

#define JSONL_OPTION                                                                               \
    {                                                                                              \
        "jsonl", NULL, "one JSON value a line from standard input, one object a line out", 0       \
    }

static const struct command_option describe_options[] = {
    {"expert-groups", "N",
     "number layers as `deploy --expert-groups N` does: each block's experts in N groups (1)", 0},
    {0},
};
static const struct command_option tokenize_options[] = {
    {"text", "T", "the text", 0},
    {"file", "FILE|-", "a file with the text, - for standard input", 0},
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
    {"messages", "FILE|-",
     "a JSON file with a list of messages, or an object with messages; - for standard input", 0},
    {"add-generation-prompt", NULL, "end with the opening of the assistant's turn", 0},
    JSONL_OPTION,
    {0},
};

const struct command model_verbs[] = {
    {"model describe", "MODEL", 1, 1,
     "what a model file is: architecture, sizes, tensors, tokenizer, template, layers",
     "MODEL is a GGUF file, a Hugging Face folder or an ONNX file (*.onnx). Only headers are read, "
     "so it takes no time at any size.\n"
     "Of ONNX files it says inputs and outputs, sizes that are free by their names, and operators, "
     "with those that `model run` lacks.",
     "  hpctl model describe demo-q8_0.gguf\n  hpctl model describe ./Llama-3.2-1B -o json\n"
     "  hpctl model describe resnet50.onnx\n"
     "  hpctl model describe model.gguf --expert-groups 4",
     describe_options, model_describe_run, false},
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
