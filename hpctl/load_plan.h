/* What a load asks of a deployment: when each request arrives, and how many tokens its prompt and
 * its answer have, drawn from distributions or read from a file. Equal options give equal requests.
 * Nothing is sent here. */
#ifndef HP_HPCTL_LOAD_PLAN_H
#define HP_HPCTL_LOAD_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"
#include "planners/dispatch/arrivals.h"

enum { LOAD_MAX_REQUESTS = 1000000, LOAD_MAX_TOKENS = 1 << 24 };

/* How many tokens: any number from `least` to `most` alike, or lognormal, of which 95 % would lie
 * between the two and the rest counts as the nearer one. */
struct load_lengths {
    uint32_t least, most;
    bool lognormal;
};
/* "200", "200..2000", "lognormal:200..2000". HP_EUSAGE names the option and what it got. */
int load_lengths_parse(const char *text, const char *option, struct load_lengths *out,
                       struct err *e);

struct load_options {
    enum arrivals_kind kind;
    const char *file;       /* of ARRIVALS_TRACE */
    const char *deployment; /* whose lines of the file count */
    double rate_per_s;      /* 0: the file's own pace */
    double seconds;         /* of arrivals; INFINITY: the whole file */
    struct load_lengths prompt, answer;
    uint64_t seed;
};

struct load_request {
    double at_s; /* after the start */
    uint32_t prompt_tokens, answer_tokens;
    size_t prompt; /* which: requests of one number and length ask the same */
};

struct load_plan {
    struct load_request *requests; /* in order of time */
    size_t n, room;
    double seconds; /* over which they arrive */
};

/* Lines of a file are `seconds`, `seconds,deployment`, `seconds,prompt,answer` or
 * `seconds,deployment,prompt,answer`, in order of time; a first line without a number is a header,
 * and lines of other deployments are left out. Without lengths they are drawn. HP_ENOENT, HP_EIO;
 * HP_EPARSE names the line; HP_ELIMIT: more than LOAD_MAX_REQUESTS; HP_EINVAL: not one request. */
int load_plan_make(const struct load_options *o, struct load_plan *out, struct err *e);
/* For clients that ask one after the other: `n` requests whose times are 0 and that ask the same
 * `n_prompts` (1 or more) again and again, with answers as long each time. HP_ENOMEM, HP_ELIMIT. */
int load_plan_repeat(const struct load_options *o, size_t n_prompts, size_t n,
                     struct load_plan *out, struct err *e);
void load_plan_free(struct load_plan *p);

/* Appends the prompt of request `index` as a JSON array of ids below `vocabulary`: the first
 * `common` ones are the same for all requests of a seed, the others this request's own. */
void load_prompt_write(const struct load_plan *p, size_t index, uint64_t seed, uint32_t common,
                       uint32_t vocabulary, struct buffer *out);

#endif
