/* `hpctl run` and `hpctl chat`: talk to a deployment, or to a model file on this box, through the
 * gateway, as any client would. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/fs.h"
#include "hpctl/answer.h"
#include "hpctl/conversation.h"
#include "hpctl/shown.h"
#include "hpctl/talk.h"
#include "hpctl/verbs.h"

enum { PROMPT_MAX_BYTES = 64 << 20 };

/* ---- run ---- */

static int run_run(struct invocation *in, struct err *e)
{
    struct talk t;
    struct answer a = {.quiet = in->json};
    const char *prompt = in->arguments[in->n_arguments - 1],
               *system = invocation_option(in, "system");
    struct buffer from_stdin = {0};
    int rc = 0;
    if (strcmp(prompt, "-") == 0) {
        if ((rc = fs_input_read(prompt, PROMPT_MAX_BYTES, &from_stdin, e)) < 0)
            return rc;
        prompt = buffer_cstr(&from_stdin);
    }
    if ((rc = talk_open(in, in->n_arguments == 2 ? in->arguments[0] : NULL, &t, e)) < 0) {
        buffer_free(&from_stdin);
        return rc;
    }
    json_t *messages = json_array();
    if (system)
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "system", "content", system));
    const json_t *user =
        json_item_add(messages, json_pack("{s:s, s:s}", "role", "user", "content", prompt));
    rc = user ? answer_ask(in, &t.where, t.name, messages,
                           invocation_flag(in, "raw") ? prompt : NULL, &a, e)
              : err_set(e, HP_EINVAL, "the prompt is not valid UTF-8");
    answer_show_end(&a);
    if (rc == 0 && in->json)
        rc = invocation_print_json(in, answer_json(&a, t.name), e);
    else if (rc == 0 && invocation_flag(in, "stats"))
        answer_print_timings(&a);
    json_decref(messages);
    buffer_free(&from_stdin);
    answer_free(&a);
    talk_close(&t);
    return rc;
}

/* ---- chat ---- */

static int run_chat(struct invocation *in, struct err *e)
{
    struct talk t;
    int rc = talk_open(in, in->n_arguments ? in->arguments[0] : NULL, &t, e);
    if (rc < 0)
        return rc;
    rc = conversation_hold(in, &t, e);
    talk_close(&t);
    return rc;
}

#define SAMPLING_OPTIONS                                                                           \
    {"system", "TEXT", "a system message", 0}, {"max-tokens", "N", "tokens to make at most", 0},   \
        {"temperature", "T", "0: always the likeliest (default 1)", 0},                            \
        {"top-p", "P", "keep the likeliest tokens that sum to P", 0},                              \
        {"top-k", "K", "keep the K likeliest", 0},                                                 \
        {"min-p", "P", "keep tokens at least P times as likely as the likeliest", 0},              \
        {"seed", "N", "same seed, same answer", 0}, {"stop", "TEXT", "end before this text", 0},   \
        OWN_OPTIONS,                                                                               \
    {                                                                                              \
        "context", "NAME", "of the cluster (default: the current one)", 0                          \
    }

static const struct command_option run_options[] = {
    SAMPLING_OPTIONS,
    {"raw", NULL, "complete the prompt as it stands, without the chat template", 0},
    {"stats", NULL, "print tokens and times when done", 0},
    {0},
};
static const struct command_option chat_options[] = {SAMPLING_OPTIONS, {0}};
const struct command chat_verbs[] = {
    {"run", "[NAME|FILE] PROMPT|-", 1, 2, "ask a deployment or a model file, and stream the answer",
     "NAME may be left out where there is one deployment. What has a slash or ends in .gguf is a "
     "FILE on this box (or a folder), and needs no\n"
     "cluster: one of its own begins and ends with this verb. - reads the prompt from standard "
     "input.",
     "  hpctl run ./model.gguf \"What is the capital of Cuba?\"\n  hpctl run \"What is the capital "
     "of Cuba?\" --temperature 0\n  hpctl run demo - --stats < "
     "question.txt\n  hpctl run demo \"Once upon\" --raw --max-tokens 40 -o json",
     run_options, run_run, false},
    {"chat", "[NAME|FILE]", 0, 1, "talk to a deployment or to a model file",
     "Lines of standard input are what you say; \\ at a line's end or \"\"\" around several makes "
     "them one. /help lists commands: another\n"
     "answer, another question, the system message, saving and loading. On a terminal lines are "
     "edited and remembered, several that are pasted are one question, Ctrl-C stops the\n"
     "answer, Markdown is shown as such (not where NO_COLOR is set), and words go to the next line "
     "as a whole. With -o json every answer "
     "is an object. What has a slash or ends in .gguf is a file, which needs no "
     "cluster.",
     "  hpctl chat demo\n  hpctl chat ./model.gguf\n  hpctl chat --system \"Be brief.\" "
     "--temperature 0",
     chat_options, run_chat, false},
    {0},
};
