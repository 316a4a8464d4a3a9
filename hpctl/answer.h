/* One answer of a model, as it comes over the HTTP API. */
#ifndef HP_HPCTL_ANSWER_H
#define HP_HPCTL_ANSWER_H

#include <jansson.h>

#include "common/bytes.h"
#include "hpctl/command.h"
#include "hpctl/context.h"
#include "hpctl/markdown.h"
#include "hpctl/word_wrap.h"

/* All zero but for what is to be shown. */
struct answer {
    bool quiet, styled; /* nothing is written to standard output; as Markdown looks */
    bool wraps;         /* words are not broken at the terminal's edge */
    struct buffer text;
    json_t *usage, *timings; /* once it has ended */
    char finish[16];
    struct waiting *waiting; /* for its first piece, before people */
    struct markdown markdown;
    struct word_wrap wrap;
};

/* Asks `model` what `messages` lead to, or with `raw` how that text goes on, by the sampling
 * options that the verb declares; what comes is written to standard output. Errors as of http_post:
 * HP_ECANCELED after Ctrl-C, with what had come in a->text. */
int answer_ask(const struct invocation *in, struct context *where, const char *model,
               json_t *messages, const char *raw, struct answer *a, struct err *e);
/* After it, whether it went well or not: the end of what was shown. */
void answer_show_end(struct answer *a);
/* What `run` and a turn of `chat` say with -o json; NULL: no memory. */
json_t *answer_json(struct answer *a, const char *model);
/* Tokens and times, to standard error. */
void answer_print_timings(const struct answer *a);
void answer_free(struct answer *a);

#endif
