/* What a handler may bring about: send, answer, store, forget, open a model, run work, call back.
 * Effects are collected as actions (action.h) and done by the shell after the event, in order.
 *
 * What cannot be said for want of memory is lost, as on a bad network: orders show again with a
 * heartbeat that does not have them, requests and sequences have deadlines, hpctl asks again. What
 * may not be lost has its room beforehand: the end of every open request (effects_ends_reserve),
 * and a record that was lost is told to whoever asked for the change (admin.c). */
#ifndef HP_COORDINATOR_EFFECTS_H
#define HP_COORDINATOR_EFFECTS_H

#include "coordinator/state.h"
#include "transport/message.h"

/* ---- send ---- */
bool effects_send(struct coord *c, uint64_t peer,
                  const struct message *m); /* false: lost for want of memory */
void effects_refuse(struct coord *c, uint64_t peer, uint64_t id, const struct err *why);

/* ---- answer hpctl ---- */
void effects_answer(struct coord *c, uint64_t peer, uint64_t id, bool more,
                    json_t *result); /* takes `result` (NULL: null) */
void effects_answer_error(struct coord *c, uint64_t peer, uint64_t id, const struct err *why);
/* The last answer to a verb that changed something in an earlier step. Where the store cannot be
 * written it says so instead. */
void effects_answer_done(struct coord *c, uint64_t peer, uint64_t id, json_t *result);
/* ... of a change that was made and is not on the disk. */
void effects_answer_not_stored(struct coord *c, uint64_t peer, uint64_t id);

/* ---- store, forget ---- */
void effects_store_json(struct coord *c, const char *kind, const char *key,
                        json_t *value); /* takes value */
void effects_store_bytes(struct coord *c, const char *kind, const char *key, const void *bytes,
                         size_t size);
void effects_forget(struct coord *c, const char *kind, const char *key);

/* ---- all others ---- */
/* Appends an action; the caller fills what `bytes` does not say. NULL: lost for want of memory, and
 * said in the log. */
struct coord_action *effects_add(struct coord *c, enum coord_action_kind kind, const void *bytes,
                                 size_t size);
struct arena *effects_arena(struct coord *c); /* lives as long as the action */

/* ---- call back ---- */
/* Makes room for the end of one more request, so that it cannot be lost: each reserved end is used
 * by one effects_end_add. */
bool effects_ends_reserve(struct coord *c);
struct coord_action *effects_end_add(struct coord *c, enum coord_action_kind kind);
/* The list of sequences that live as long as the actions of now: what those point at. */
struct sequence **effects_ended(struct coord *c);
/* Callbacks of a request that has been cancelled are not to come any more. */
void effects_forget_request(struct coord *c, uint64_t request);
void effects_call_back(const struct coord_action *a);

/* ---- the other side ---- */
/* The batch that is complete, and the next one begins; what the last but one pointed at is the
 * caller's to free (sequences_free). */
struct effects_batch *effects_turn(struct coord *c, struct sequence **ended);
/* What is left of a batch, with the places of its bytes. */
const struct coord_action *effects_hand_over(struct effects_batch *b, size_t *count);
void effects_free(struct coord *c);

#endif
