#include "hpctl/ask.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "hpctl/client.h"
#include "hpctl/shown.h"
#include "hpctl/waiting.h"
#include "hpctl/watched.h"

int ask_option(json_t *question, const char *key, json_t *value, struct err *e)
{
    return json_object_set_new(question, key, value) == 0 ? 0 : err_no_memory(e, "a question");
}

static int question_make(const struct ask_verb *v, const struct invocation *in, json_t **out,
                         struct err *e)
{
    json_t *question = json_object();
    int rc = question ? 0 : err_no_memory(e, "a question");
    if (rc == 0 && v->key) {
        json_t *argument = json_string(in->arguments[0]);
        rc = argument ? ask_option(question, v->key, argument, e)
                      : err_set(e, HP_EINVAL, "\"%s\" is not valid UTF-8", in->arguments[0]);
    }
    if (rc == 0 && v->options)
        rc = v->options(in, question, e);
    if (rc < 0)
        json_decref(question);
    else
        *out = question;
    return rc;
}

static int answer_show(const struct ask_verb *v, const struct invocation *in, const json_t *answer,
                       struct err *e)
{
    if (v->print)
        return v->print(in, answer, e);
    if (v->columns)
        return table_print_list(v->columns, answer, v->said, e);
    printf("%s %s\n", in->arguments[0], v->said);
    return 0;
}

static int verb_ask(const void *row, const struct invocation *in, struct err *e)
{
    const struct ask_verb *v = row;
    json_t *question, *answer = NULL;
    int rc = question_make(v, in, &question, e);
    if (rc < 0)
        return rc;
    struct waiting *w = waiting_begin(shown_of("%s goes on", v->path).s, 0, in->json);
    rc = client_get_once(invocation_option(in, "context"), v->verb, question, &answer, e);
    waiting_end(&w);
    if (rc < 0)
        return rc;
    if (in->json) /* what has nothing to say says {} */
        return invocation_print_json(in, answer && !json_is_null(answer) ? answer : json_object(),
                                     e);
    rc = answer_show(v, in, answer, e);
    json_decref(answer);
    return rc;
}

int ask_verb_run(const struct ask_verb *rows, const struct invocation *in, struct err *e)
{
    const struct ask_verb *v = rows;
    while (v->path && strcmp(v->path, in->command->path) != 0)
        v++;
    assert(v->path && "the command has its row");
    return watched_run(in, verb_ask, v, e);
}
