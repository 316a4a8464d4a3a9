/* What an API key has used, against what it may (key_limits.h): rates that refill steadily, a
 * budget of 24 hours, one for good. Time is handed in and is a clock's that never jumps; what lies
 * between two runs of the program is told by the wall clock and believed only forwards, so that a
 * clock that is set shortens a day's budget at most, and no count is lost.
 *
 * Prompts count when they are taken, answers as their tokens come. What runs when a limit is
 * reached goes on: a rate that was overdrawn is paid back by waiting. */
#ifndef HP_COORDINATOR_KEY_METER_H
#define HP_COORDINATOR_KEY_METER_H

#include "coordinator/key_limits.h"
#include "coordinator/requests.h"

enum { KEY_DAY_S = 24 * 60 * 60 };

struct key_rate {
    double used; /* of a minute's, as it was `at` */
    uint64_t at_ns;
};

struct key_meter {
    struct key_rate requests, tokens;
    bool day_runs;
    int64_t day_from_ns; /* of the day that runs: may lie before the clock's beginning */
    uint64_t day_tokens;
    uint64_t n_requests, n_refused, prompt_tokens, output_tokens; /* ever */
};

/* Whether so many requests and tokens are within the limits now. HP_ERATE, HP_EQUOTA: not yet, and
 * in *wait_s they may be (a budget for good: in KEY_DAY_S); HP_ELIMIT: never. */
int key_meter_check(struct key_meter *m, const struct key_limits *l, uint64_t now_ns,
                    uint64_t requests, uint64_t tokens, double *wait_s, struct err *e);
void key_meter_request(struct key_meter *m, const struct key_limits *l, uint64_t now_ns);
void key_meter_tokens(struct key_meter *m, const struct key_limits *l, uint64_t now_ns,
                      uint64_t prompt, uint64_t output);
/* Tokens of a prompt that was counted and then not used; a day that began meanwhile owes none. */
void key_meter_return(struct key_meter *m, const struct key_limits *l, uint64_t now_ns,
                      uint64_t prompt);
/* What the budgets leave; UINT64_MAX: there are none. */
uint64_t key_meter_left(struct key_meter *m, const struct key_limits *l, uint64_t now_ns);
/* Requests by their rate; tokens by what leaves least of rate and budgets. */
void key_meter_view(struct key_meter *m, const struct key_limits *l, uint64_t now_ns,
                    struct request_limits *out);

/* As a record, and back: `unix_s` is the wall clock then. HP_EPARSE. */
json_t *key_meter_json(struct key_meter *m, uint64_t now_ns, uint64_t unix_s);
int key_meter_restore(struct key_meter *m, const json_t *record, uint64_t now_ns, uint64_t unix_s,
                      struct err *e);

#endif
