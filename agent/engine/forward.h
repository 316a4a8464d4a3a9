/* One batch through layers [first, end) of a sequence model: positions, rows that enter and leave,
 * and the rows whose logits are wanted, over the section that runs them (section_run.h). */
#ifndef HP_AGENT_ENGINE_FORWARD_H
#define HP_AGENT_ENGINE_FORWARD_H

#include "agent/engine/section_run.h"

enum {
    FORWARD_LOGIT_ROWS = 64
}; /* rows that meet the head together: bounds the memory of logits */

enum { FORWARD_DEPTH = 2 };

struct forward_config {
    struct section_config section; /* but for `sizes` */
    uint32_t max_rows;
    enum dtype border;   /* as what float32 values enter from another stage, and leave for one */
    bool experts_by_lot; /* as op_batch has it */
};

/* Bytes on the device: of weights, and of values and scratch. HP_ENOMEM, HP_EUNSUPPORTED. */
int forward_footprint(const struct forward_config *c, struct section_need *out, struct err *e);

struct forward;
/* Positions that the layers know; UINT32_MAX where any will do. */
uint32_t forward_positions(const struct forward *f);
/* Whether a sequence that may reach so many tokens rotates as a long one, from its first token on.
 */
bool forward_rotates_long(const struct forward *f, uint32_t most_tokens);
/* What all batches are put on: what touches their sequences' KV in turn with them goes there too.
 */
struct stream *forward_stream(const struct forward *f);
/* Errors of section_run_create. */
int forward_create(const struct forward_config *c, struct forward **out, struct err *e);
void forward_destroy(struct forward **f);
/* What the layers stand on: of weights that come later (section_run_promise and what follows it).
 */
struct section_run *forward_section(const struct forward *f);

/* Rows whose logits are looked at and not kept. */
struct forward_scoring {
    float *rows; /* [n_rows, vocabulary]: room for so many at once */
    uint32_t n_rows;
    /* Rows `first` to first + n - 1 of the scored ones are there; on the thread that submits. */
    void (*see)(void *ctx, uint32_t first, uint32_t n, const float *rows);
    void *ctx;
};

/* Tokens that the device picks where the rows are. */
struct forward_sampling {
    const struct sample_ask *asks; /* [n_logit_rows], of the rows that are wanted */
    uint32_t
        *picked; /* [n_logit_rows]; SAMPLE_IN_DOUBT: the row is in `output`, else it need not be */
};

/* What the layers take between others of their stage: their operators alone, without the rows that
 * come from the host and go there, which a stage has once and not for each of its layers. */
struct forward_timing {
    uint32_t repeats; /* all put on the stream before any is waited for */
    double seconds;   /* of one */
};

/* Rows in memory of the device's own, where others reach it: they come and go as they would by the
 * host, each value with all its rows. */
struct forward_device_rows {
    struct memory memory;       /* data NULL: none, they come or go by the host */
    uint64_t rows;              /* that each value has there */
    const uint32_t *first_rows; /* [n_runs]: where those of each run begin, of rows that come; NULL:
                                   one run's after the other's */
};

struct forward_batch {
    const struct attention_run *runs; /* [n_runs] */
    int n_runs;
    uint32_t rows;
    const void *input; /* u32 ids [rows] where the layers begin with the embedding; else the values
                          that enter, one after the other, each [rows, its width] as `border` */
    const uint32_t
        *logit_rows; /* rows whose logits are wanted; used where the layers end with the head */
    uint32_t n_logit_rows;
    const uint32_t *scored_rows; /* the same of rows that `scoring` sees, before the others */
    uint32_t n_scored_rows;
    const struct forward_scoring *scoring;   /* NULL: none */
    const struct forward_sampling *sampling; /* NULL: all rows go to `output` */
    struct forward_timing *timing;           /* NULL: nobody asks */
    struct err *failure; /* of the device before all of them were seen, or timed; may be NULL where
                            none are scored nor timed */
    void *output; /* f32 [n_logit_rows, vocabulary] where they do; else the values that leave, as
                     those that enter */
    struct forward_device_rows from, to; /* instead of `input` and `output`, of layers that have
                                            others before and after them */
    const struct kv_group *kv;           /* by group */
};

/* Puts the batch on the device's stream, and the event after it: waiting for that gives the batch's
 * failure. Input, output and logit_rows stay as they are until then. At most FORWARD_DEPTH batches
 * are under way. */
void forward_submit(struct forward *f, const struct forward_batch *b, struct event *done);

#endif
