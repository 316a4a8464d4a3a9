/* Invitations to join: one secret for one agent. What is kept is its digest. */
#ifndef HP_COORDINATOR_INVITES_H
#define HP_COORDINATOR_INVITES_H

#include "coordinator/state.h"

struct member_invite {
    char digest[65];
    uint64_t expires_s, created_s; /* Unix time */
    char used_by[MEMBER_NAME];     /* "" while it is good */
};

enum {
    INVITES_MOST = 4096,         /* used ones among them */
    INVITES_MOST_S = 315360000,  /* ten years */
    INVITES_CLOCK_SLACK_S = 300, /* so far a clock may be set back without a word */
};

/* A token that is good for `ttl_s` seconds. HP_EINVAL, HP_ELIMIT, HP_ENOMEM. */
int invites_create(struct coord *c, uint64_t ttl_s, char token[JOIN_TOKEN_TEXT], struct err *e);
/* Whether the secret opens the door to this key, and which invitation it uses up. HP_EDENIED. */
int invites_check(struct coord *c, const char *key, const char *secret, struct member_invite **out,
                  struct err *e);
void invites_use(struct coord *c, struct member_invite *v, const char *by);
int invites_restore(struct coord *c, const char *digest, json_t *record, struct err *e);
void invites_free(struct coord *c);

#endif
