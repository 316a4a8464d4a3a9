/* `hpctl key`: API keys of the HTTP API, what they may do and what they have used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hpctl/ask.h"
#include "hpctl/shown.h"
#include "hpctl/verbs.h"
#include "hpctl/watched.h"

/* ---- tables ---- */

static void limit_cell(struct buffer *cell, const json_t *key, const char *name, const char *words)
{
    const json_t *limit = json_object_get(key, name);
    if (json_is_integer(limit))
        buffer_printf(cell, "%s%lld %s", cell->size ? ", " : "",
                      (long long)json_integer_value(limit), words);
}

static void cell_limits(struct buffer *cell, const json_t *key)
{
    struct buffer text = {0};
    double priority = number_member(key, "priority");
    limit_cell(&text, key, "requests_per_minute", "requests/min");
    limit_cell(&text, key, "tokens_per_minute", "tokens/min");
    limit_cell(&text, key, "tokens_per_day", "tokens/day");
    limit_cell(&text, key, "tokens_total", "tokens");
    if (priority < 0 || priority > 0)
        buffer_printf(&text, "%spriority %.0f", text.size ? ", " : "", priority);
    buffer_printf(cell, "%s", text.size ? buffer_cstr(&text) : "none");
    buffer_free(&text);
}

static void cell_models(struct buffer *cell, const json_t *models)
{
    const json_t *name;
    size_t i;
    json_array_foreach(models, i, name)
    {
        buffer_printf(cell, "%s%s", i ? "," : "", json_string_value(name));
    }
    if (!json_is_array(models))
        buffer_printf(cell, "all");
}

static void cell_used_requests(struct buffer *cell, const json_t *used)
{
    buffer_printf(cell, "%.0f", number_member(used, "requests"));
    if (number_member(used, "refused") > 0)
        buffer_printf(cell, " (%.0f refused)", number_member(used, "refused"));
}

static void cell_used_tokens(struct buffer *cell, const json_t *used)
{
    buffer_printf(cell, "%.0f",
                  number_member(used, "prompt_tokens") + number_member(used, "output_tokens"));
}

static void cell_left(struct buffer *cell, const json_t *used)
{
    const json_t *left = json_object_get(used, "tokens_left");
    if (json_is_integer(left))
        buffer_printf(cell, "%lld", (long long)json_integer_value(left));
    else
        buffer_printf(cell, "-");
}

static const struct table_column key_columns[] = {
    {"NAME", "name", NULL},
    {"CREATED", "created_s", cell_date},
    {">WEIGHT", "weight", NULL},
    {"LIMITS", NULL, cell_limits},
    {"MODELS", "models", cell_models},
    {">REQUESTS", "used", cell_used_requests},
    {">TOKENS", "used", cell_used_tokens},
    {">LEFT", "used", cell_left},
    {0},
};

static int print_key(const struct invocation *in, const json_t *made, struct err *e)
{
    (void)in;
    (void)e;
    printf("%s\n", string_member(made, "key"));
    fprintf(stderr, "shown this once; clients send it as `Authorization: Bearer KEY`, which the "
                    "API wants from now on\n");
    return 0;
}

/* ---- options ---- */

enum { KEY_MODELS_MOST = 64 };

/* A limit as the coordinator takes it: a number, or null where it is taken away. */
static int limit_option(const struct invocation *in, const char *option, const char *name,
                        json_t *question, struct err *e)
{
    const char *text = invocation_option(in, option);
    uint64_t limit;
    if (!text)
        return 0;
    if (strcmp(text, "none") == 0)
        return ask_option(question, name, json_null(), e);
    int rc = invocation_range(in, option, 0, 1, UINT64_C(1000000000000000), &limit, e);
    return rc < 0 ? rc : ask_option(question, name, json_integer((json_int_t)limit), e);
}

static int models_option(const struct invocation *in, json_t *question, struct err *e)
{
    const char *text = invocation_option(in, "models");
    if (!text)
        return 0;
    if (strcmp(text, "all") == 0)
        return ask_option(question, "models", json_null(), e);
    json_t *models = json_array();
    for (size_t n; text; text = text[n] ? text + n + 1 : NULL) {
        n = strcspn(text, ",");
        if (n == 0 || json_array_size(models) == KEY_MODELS_MOST ||
            json_array_append_new(models, json_stringn(text, n)) < 0) {
            json_decref(models);
            return err_set(e, HP_EUSAGE,
                           "--models is \"all\", or up to %d names of deployments with commas "
                           "between, such as chat,embed",
                           KEY_MODELS_MOST);
        }
    }
    return ask_option(question, "models", models, e);
}

static int priority_option(const struct invocation *in, json_t *question, struct err *e)
{
    double priority;
    if (!invocation_option(in, "priority"))
        return 0;
    int rc = invocation_number(in, "priority", 0, &priority, e);
    if (rc == 0 && (priority < -100 || priority > 100 || priority != (double)(int)priority))
        rc = err_set(e, HP_EUSAGE, "--priority is a whole number from -100 to 100");
    return rc < 0 ? rc : ask_option(question, "priority", json_integer((json_int_t)priority), e);
}

static int options_key(const struct invocation *in, json_t *question, struct err *e)
{
    static const char *const limits[][2] = {{"rpm", "requests_per_minute"},
                                            {"tpm", "tokens_per_minute"},
                                            {"tokens-day", "tokens_per_day"},
                                            {"tokens", "tokens_total"}};
    uint64_t weight;
    int rc = 0;
    if (invocation_option(in, "weight")) {
        rc = invocation_range(in, "weight", 1, 1, 1000, &weight, e);
        rc = rc < 0 ? rc : ask_option(question, "weight", json_integer((json_int_t)weight), e);
    }
    for (size_t i = 0; i < sizeof limits / sizeof *limits && rc == 0; i++)
        rc = limit_option(in, limits[i][0], limits[i][1], question, e);
    rc = rc < 0 ? rc : priority_option(in, question, e);
    return rc < 0 ? rc : models_option(in, question, e);
}

static int options_edit(const struct invocation *in, json_t *question, struct err *e)
{
    size_t before = json_object_size(question);
    int rc = options_key(in, question, e);
    if (rc == 0 && json_object_size(question) == before)
        rc = err_set(e, HP_EUSAGE, "say what is to change, such as --rpm 60 or --models all");
    return rc;
}

/* ---- the table ---- */

static const struct ask_verb asks[] = {
    {"key create", "key.create", "name", options_key, .print = print_key},
    {"key edit", "key.edit", "name", options_edit, .said = "has its new limits from now on"},
    {"key ls", "key.ls", .columns = key_columns,
     .said = "no API key; beyond loopback the HTTP API needs one"},
    {"key rm", "key.rm", "name", .said = "opens nothing any more"},
    {0},
};

static int run_ask(struct invocation *in, struct err *e)
{
    return ask_verb_run(asks, in, e);
}

static const struct command_option context_options[] = {CONTEXT_OPTION, {0}};
static const struct command_option list_options[] = {CONTEXT_OPTION, WATCH_OPTION, {0}};
static const struct command_option key_options[] = {
    {"weight", "N", "its share beside other keys where requests wait, 1 to 1000 (default 1)", 0},
    {"priority", "N", "added to its requests' priority, -100 to 100: lower goes first (default 0)",
     0},
    {"rpm", "N|none", "requests a minute", 0},
    {"tpm", "N|none", "tokens a minute, of prompts and answers together", 0},
    {"tokens-day", "N|none", "tokens in 24 hours, from the first on", 0},
    {"tokens", "N|none", "tokens in all", 0},
    {"models", "A,B|all", "the deployments that it may use (default: all)", 0},
    CONTEXT_OPTION,
    {0}};

const struct command key_verbs[] = {
    {"key create", "NAME", 1, 1,
     "make an API key for clients of the HTTP API, which needs one from then on",
     "Where requests wait, clients take turns by their keys' weights. What is beyond a key's "
     "limits "
     "gets 429 and is told when to come again, a model that it may not use 403.",
     "  hpctl key create laptop\n  hpctl key create batch --weight 3 --priority 10\n"
     "  hpctl key create guest --rpm 20 --tpm 10000 --tokens-day 200000 --models chat,embed",
     key_options, run_ask, false},
    {"key edit", "NAME", 1, 1, "change what an API key may do",
     "What is not named stays; `none` takes a limit away, `--models all` those of the models.",
     "  hpctl key edit guest --rpm 60 --tokens-day none\n  hpctl key edit guest --models all",
     key_options, run_ask, false},
    {"key ls", "", 0, 0, "list API keys, what they may do and what they have used",
     "LEFT is what the budgets leave, TOKENS those of prompts and answers ever.",
     "  hpctl key ls\n  hpctl key ls -o json", list_options, run_ask, false},
    {"key rm", "NAME", 1, 1, "take an API key back", NULL, "  hpctl key rm laptop", context_options,
     run_ask, false},
    {0},
};
