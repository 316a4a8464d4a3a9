/* Asks the coordinator and waits for the answer: one connection, one question at a time. */
#ifndef HP_HPCTL_CLIENT_H
#define HP_HPCTL_CLIENT_H

#include <jansson.h>
#include <stdint.h>

#include "common/pack.h"
#include "common/status.h"
#include "hpctl/context.h"

struct client;

/* Connects by a context (NULL: the current one) and sees that somebody answers: HP_ENOCLUSTER
 * otherwise, HP_EDENIED when the key is not the admin's, HP_EPROTO when the coordinator is of
 * another release. */
int client_open(const char *context, struct client **out, struct err *e);
int client_open_at(const struct context *context, uint64_t patience_ms, struct client **out,
                   struct err *e);
void client_close(struct client **c);
const struct context *client_context(const struct client *c);

struct client_ask {
    const char *verb;
    json_t *arguments;     /* taken; NULL: {} */
    struct pack_span blob; /* may be empty */
    uint64_t patience_ms;  /* between two answers; 0: 60 s */
    /* Each answer but the last: a JSON value. A negative return ends the waiting with that code.
     * May be NULL. */
    int (*progress)(void *ctx, const json_t *part, struct err *e);
    void *ctx;
};

/* *result (may be NULL) is the caller's; *blob (may be NULL) is appended. While it waits it looks
 * twice a second whether the coordinator is there: the user is told when it falls silent, the
 * question is asked again when the coordinator was restarted, and given up (HP_ELINK) when nothing
 * is heard for 30 s. */
int client_ask(struct client *c, const struct client_ask *ask, json_t **result, struct buffer *blob,
               struct err *e);
/* The short form: verb and arguments (taken). */
int client_get(struct client *c, const char *verb, json_t *arguments, json_t **result,
               struct err *e);
/* The shortest: connects by a context, asks, closes. */
int client_get_once(const char *context, const char *verb, json_t *arguments, json_t **result,
                    struct err *e);

#endif
