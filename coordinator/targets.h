/* Targets of a deployment: `hpctl deploy --ttft` for the time to the first token, `--tpot` for each
 * token after it. Who is let in is to be answered within both, and who cannot be is told at once
 * and not after waiting for nothing:
 *
 * - So many run at once as keep the time per token. What steps take decides, not a model of them:
 *   while they are well within the target and somebody waits, one more may run; where they take
 *   longer, fewer may, in proportion (additive increase, multiplicative decrease).
 * - A request whose first token would come too late, by the plan's time for the prompts that are
 *   read before it and its own, is refused when it comes, or as soon as it has waited too long. The
 *   plan's times are corrected by what prompts took lately.
 *
 * A deployment where nothing runs lets everybody in, whatever it thinks. Sequences that ran before,
 * forks, embeddings and questions of hpctl are never held up here. Without targets nobody is; a
 * default of the time per token only says how long slices beside running answers may be. */
#ifndef HP_COORDINATOR_TARGETS_H
#define HP_COORDINATOR_TARGETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct coord;
struct deployment;
struct request_spec;
struct sequence;

/* Time per token for which slices of prompts beside running answers are cut: of --tpot, or
 * APART_TPOT_DEFAULT_S (planners/pipeline/apart.h), which holds up nobody and limits nothing else.
 */
double targets_tpot_s(const struct deployment *d);
/* Tokens of a slice that no stage is at for longer than half of that by what the plan says of each:
 * a step of decode comes between two. 0: any, where there is no plan with measured times, or where
 * somebody said how prompts are cut and nothing of --tpot. */
uint64_t targets_beside_tokens(const struct deployment *d);

/* A sequence is let in, and its prompt is to be read. */
void targets_opened(struct deployment *d, struct sequence *s);
/* `fresh` tokens of a sequence came `after_ns` after those before them (or, its first, after it was
 * let in). */
void targets_told(struct deployment *d, const struct sequence *s, size_t fresh, uint64_t after_ns);
/* Whether this one may be let in now as far as --tpot goes. */
bool targets_let_in(struct deployment *d, const struct sequence *s);
/* How many tokens of a request's prompt its stages have already and need not read; 0 where nobody
 * asks for --ttft. */
uint32_t targets_known(const struct coord *c, const struct deployment *d,
                       const struct request_spec *r);
/* HP_EBUSY where a request of this client that comes now with n tokens to read would have its first
 * token after the target. */
int targets_check(const struct deployment *d, const char *client, int32_t priority, size_t n,
                  struct err *e);
/* The same of one that waits. */
int targets_keep(const struct deployment *d, const struct sequence *s, uint64_t now_ns,
                 struct err *e);

#endif
