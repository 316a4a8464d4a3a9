/* Whether what an agent measured can be believed, and what is believed of it. */
#ifndef HP_COORDINATOR_PROFILE_CHECK_H
#define HP_COORDINATOR_PROFILE_CHECK_H

#include <jansson.h>
#include <stdbool.h>

#include "common/status.h"
#include "coordinator/measured_profile.h"

struct layer_facts;
struct model_facts;

/* Whether tables (docs/protocol.md, profile_result.tables) can be believed. Form: axes that rise, a
 * positive finite time at every point. Size: layers as many as the model has, tables of at most
 * 65536 points. Sense: no time above an hour or below a quarter of that of a shorter slice, no
 * layer far from what its weights take. `facts` NULL: the model is not known, and what depends on
 * it not looked at. HP_EPARSE, HP_EINVAL: the text says where. */
int profile_check(const struct model_facts *facts, bool f32, const json_t *tables, struct err *e);
/* Bytes that a layer's weights take as measured; 0: not measured, or too far from its weights to be
 * believed. */
double profile_resident_bytes(const struct model_facts *f, int layer, bool f32,
                              const struct measured_profile *measured);
/* The same as one would guess it without measuring: by the weights' number formats where these are
 * known, else two bytes a weight (four with f32), or the file's where it has more. */
double profile_guessed_bytes(const struct layer_facts *l, bool f32);
/* Multiplies the seconds of every table, and counts it: "corrected" is the product of all factors
 * so far. */
void profile_scale(json_t *tables, double factor);

#endif
