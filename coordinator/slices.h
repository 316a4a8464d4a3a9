/* How prompts are cut on a deployment's stages. For every length there can be, slices are prepared
 * as work (work.h; planners/pipeline/slicing.h) when stages are adopted, and found in constant time
 * when a prompt comes. Short lengths are prepared first and finest; what is not prepared yet begins
 * with the nearest that is, or is cut equally. What was prepared is kept as long as the stages stay
 * the same. */
#ifndef HP_COORDINATOR_SLICES_H
#define HP_COORDINATOR_SLICES_H

#include <stdbool.h>
#include <stdint.h>

struct coord;
struct deployment;
struct slices; /* of one deployment */

/* Slices for n tokens of a prompt after `cached` ones, in the order in which they run; their sum is
 * n, and none is more than a stage runs at once. `out` has room for n; returns how many. */
int slices_cut(const struct deployment *d, uint32_t n, uint32_t cached, uint32_t *out);
/* Prepares what is not prepared, one step at a time, while its agents are here. */
void slices_advance(struct coord *c, struct deployment *d);
/* Costs have changed: prepares anew, and goes on with what there is meanwhile. */
void slices_forget(struct deployment *d);
/* Whether prompts of up to n tokens are prepared by the costs of now. */
bool slices_ready(const struct deployment *d, uint32_t n);
void slices_free(struct deployment *d);

#endif
