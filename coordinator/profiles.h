/* What agents measured of models, by kind of device: checked when it arrives, kept, listed,
 * dropped. */
#ifndef HP_COORDINATOR_PROFILES_H
#define HP_COORDINATOR_PROFILES_H

#include <jansson.h>
#include <stdbool.h>

#include "common/status.h"

struct core;
struct core_layer;
struct core_model;

/* Whether tables (docs/protocol.md, profile_result.tables) can be believed. Form: axes that rise, a
 * positive finite time at every point. Size: layers as many as the model has, tables of at most
 * 65536 points. Sense: no time above an hour or below a quarter of that of a shorter slice, no
 * layer far from what its weights take. `facts` NULL: the model is not known, and what depends on
 * it not looked at. HP_EPARSE, HP_EINVAL: the text says where. */
int profile_check(const struct core_model *facts, bool f32, const json_t *tables, struct err *e);
/* Bytes that a layer's weights take as measured; 0: not measured, or too far from its weights to be
 * believed. */
double profile_resident_bytes(const struct core_layer *l, bool f32, const json_t *tables,
                              int layer);
/* The same as one would guess it without measuring. */
double profile_guessed_bytes(const struct core_layer *l, bool f32);

json_t *core_profile_find(const struct core *c, const char *model, const char *kind,
                          const char *compute); /* borrowed */
/* HP_ENOMEM. Takes `tables`. */
int core_profile_set(struct core *c, const char *model, const char *kind, const char *compute,
                     json_t *tables, struct err *e);
/* A record of the store; what does not pass profile_check is dropped with a warning. */
int profiles_restore(struct core *c, const char *key, json_t *value, struct err *e);
void profiles_free(struct core *c);

/* Rows for people; and forgets those of a model (id, or its beginning, or name), of one kind or all
 * ("": all). HP_ENOENT. */
json_t *profiles_describe(const struct core *c);
int profiles_remove(struct core *c, const char *model, const char *kind, int *removed,
                    struct err *e);

#endif
