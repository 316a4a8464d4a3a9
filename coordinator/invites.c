#include "coordinator/invites.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "common/vector.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"

int invites_check(struct coord *c, const char *key, const char *secret, struct member_invite **out,
                  struct err *e)
{
    char digest[65];
    if (!secret[0]) {
        const char *removed = member_removed_name(c, key);
        if (removed)
            err_set(e, HP_EDENIED, "agent \"%s\" was removed from this cluster", removed);
        else
            err_set(e, HP_EDENIED,
                    "this agent's key is not known here and it brought no join token");
        return err_hint(
            e, "hpctl node token create makes one: hp-agent --join HOST:PORT --token TOKEN");
    }
    join_token_secret_digest(secret, digest);
    for (size_t i = 0; i < c->n_invites; i++) {
        struct member_invite *v = &c->invites[i];
        if (!key_equal(v->digest, digest))
            continue;
        if (v->used_by[0])
            return err_set(e, HP_EDENIED, "this join token was used already, by agent \"%s\"",
                           v->used_by);
        if (v->expires_s <= coord_unix_s(c))
            return err_set(e, HP_EDENIED, "this join token has expired");
        if (v->created_s > coord_unix_s(c) + INVITES_CLOCK_SLACK_S)
            return err_set(e, HP_EDENIED,
                           "the coordinator's clock stands before the time at which this join "
                           "token was made: nobody knows whether it has expired");
        *out = v;
        return 0;
    }
    return err_set(e, HP_EDENIED, "this join token is not one of this cluster");
}

static void invite_keep(struct coord *c, const struct member_invite *v)
{
    effects_store_json(c, "token", v->digest,
                       json_pack("{s:I, s:I, s:s}", "expires_s", (json_int_t)v->expires_s,
                                 "created_s", (json_int_t)v->created_s, "used_by", v->used_by));
}

void invites_use(struct coord *c, struct member_invite *v, const char *by)
{
    utf8_copy(v->used_by, sizeof v->used_by, by);
    invite_keep(c, v);
}

/* Those that have expired unused are of no interest to anybody, and a clock that is set back brings
 * none of them to life. */
static void invites_expire(struct coord *c)
{
    for (size_t i = c->n_invites; i-- > 0;)
        if (!c->invites[i].used_by[0] && c->invites[i].expires_s <= coord_unix_s(c)) {
            effects_forget(c, "token", c->invites[i].digest);
            vector_remove(c->invites, c->n_invites, i);
        }
}

int invites_create(struct coord *c, uint64_t ttl_s, char token[JOIN_TOKEN_TEXT], struct err *e)
{
    uint8_t chance[16];
    c->env->random_bytes(c->env->ctx, chance, sizeof chance);
    struct join_token t;
    utf8_copy(t.server_key, sizeof t.server_key, c->public_key);
    sodium_bin2hex(t.secret, sizeof t.secret, chance, sizeof chance);
    invites_expire(c);
    if (ttl_s == 0 || ttl_s > INVITES_MOST_S)
        return err_set(e, HP_EINVAL, "a join token is good for 1 to %u seconds, not for %llu",
                       INVITES_MOST_S, (unsigned long long)ttl_s);
    if (c->n_invites >= INVITES_MOST)
        return err_set(e, HP_ELIMIT, "there are %d join tokens; wait until some have expired",
                       INVITES_MOST);
    struct member_invite *v = vector_add(c->invites, c->n_invites, c->room_invites);
    if (!v)
        return err_set(e, HP_ENOMEM, "no memory for a join token");
    join_token_secret_digest(t.secret, v->digest);
    v->created_s = coord_unix_s(c);
    v->expires_s = v->created_s + ttl_s;
    invite_keep(c, v);
    join_token_text(&t, token);
    return 0;
}

int invites_restore(struct coord *c, const char *digest, json_t *record, struct err *e)
{
    struct member_invite *v = vector_add(c->invites, c->n_invites, c->room_invites);
    if (!v)
        return err_set(e, HP_ENOMEM, "no memory for join tokens");
    utf8_copy(v->digest, sizeof v->digest, digest);
    v->expires_s = (uint64_t)json_integer_value(json_object_get(record, "expires_s"));
    v->created_s = (uint64_t)json_integer_value(json_object_get(record, "created_s"));
    utf8_copy(v->used_by, sizeof v->used_by, json_string_value(json_object_get(record, "used_by")));
    return 0;
}

void invites_free(struct coord *c)
{
    free(c->invites);
}
