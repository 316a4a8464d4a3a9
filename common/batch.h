/* A batch: runs of consecutive new tokens, each of one sequence, that go through a stage together.
 * One struct on the whole way: the queue fills it, the core hands it on, the executor and the stage
 * run it, frames carry its runs. */
#ifndef HP_COMMON_BATCH_H
#define HP_COMMON_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Guesses of a sequence's next tokens that one batch may verify: with the token that is due as many
 * rows as CPUs multiply one by one in any arithmetic, so that each is what it would be alone. */
enum { BATCH_MAX_DRAFTS = 11 };
/* Where guesses are made: nowhere; where stages would be idle without and it pays; wherever a
 * sequence's text repeats. */
enum speculate { SPECULATE_OFF, SPECULATE_AUTO, SPECULATE_LOOKUP };
/* "off", "auto", "lookup", and back: false for other words. */
const char *speculate_word(enum speculate where);
bool speculate_of_word(const char *word, enum speculate *out);

/* A slice of a prompt, or one token of decode, with guesses of those that follow it. */
struct batch_run {
    uint64_t sequence;
    uint32_t first_position; /* of its first token; equals the sequence's length on the stage, or
                                that without the guesses that were wrong */
    uint32_t n_tokens;
    uint32_t n_logits; /* the last stage computes logits of the run's last n positions (0: none; 1:
                          for the next token) */
    uint32_t row;      /* of its first token in the input */
    bool sample;       /* last stage: pick a token from its last position; with guesses, from each
                          position before which they were right */
    uint32_t n_drafts; /* so many of its last tokens are guesses: the next run takes back those that
                          were wrong */
    /* last stage: scores (score.h) that are said of each of its first n_scored tokens, and of each
     * token that is picked; 0: none */
    uint32_t n_scored, scored_width, said_width;
};

/* The arrays are the batch's own, grow as needed and are used again; zero-initialised is empty. */
struct batch {
    uint32_t number; /* given by the first stage */
    struct batch_run *runs;
    uint32_t n_runs, n_tokens, n_logits, run_capacity; /* tokens and logits of all runs */
    uint32_t *ids; /* first stage: [n_tokens]; last stage: [n_tokens], those of runs with
                      guesses are there */
    uint32_t id_capacity;
    uint32_t *targets; /* last stage: the tokens that follow those that are scored, of all runs */
    uint32_t target_capacity;
    /* Other stages: the frame's payload (whose it is its holder says), and what it has rows for, of
     * which `runs` may be a part. */
    void *input;
    uint32_t input_runs, input_tokens;
    bool slice; /* a slice of a prompt; else decode tokens, or a short slice (or nothing) */
    bool again; /* without runs: the frame came twice, and its batch has gone on already */
};

/* Where a run stands among what its batch has and what the last stage makes of it, run after run:
 * ids [n_tokens]; rows of logits [n_logits]; places for tokens that are picked, one, and one more
 * for each guess; scores, [n_scored][scored_width] and, where a token is picked, [1 + n_drafts]
 * [said_width]. Zero: the first run. */
struct batch_place {
    uint32_t token, row, pick;
    size_t score;
};

/* Scores of the run's own tokens, which stand before those of what is picked. */
static inline size_t batch_run_prompt_scores(const struct batch_run *run)
{
    return (size_t)run->n_scored * run->scored_width;
}

/* From a run to where the next one stands. */
static inline void batch_place_pass(struct batch_place *at, const struct batch_run *run)
{
    at->token += run->n_tokens;
    at->row += run->n_logits;
    at->pick += 1 + run->n_drafts;
    at->score += batch_run_prompt_scores(run) +
                 (run->sample ? (size_t)(1 + run->n_drafts) * run->said_width : 0);
}

/* Frees the arrays; the batch is empty then. */
void batch_free(struct batch *b);
/* Room for so many runs and ids; false when memory ran out. */
bool batch_reserve(struct batch *b, uint32_t n_runs, uint32_t n_ids);
/* There must be room. */
void batch_append(struct batch *b, const struct batch_run *run);
/* No runs, ids and input; the memory stays. */
void batch_clear(struct batch *b);

#endif
