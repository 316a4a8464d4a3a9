#include "coordinator/admin_int.h"
#include "coordinator/api_keys.h"
#include "coordinator/invites.h"

enum { ADMIN_TOKEN_TTL_S = 3600 };

static int verb_token_create(struct coord *c, struct question *q, struct err *e)
{
    char token[TOKEN_TEXT];
    uint64_t ttl = admin_number(q, "ttl_s", ADMIN_TOKEN_TTL_S);
    int rc = invites_create(c, ttl, token, e);
    if (rc == 0)
        q->result = json_pack("{s:s, s:I}", "token", token, "expires_s",
                              (json_int_t)coord_unix_s(c) + (json_int_t)ttl);
    return rc;
}

static int verb_token_ls(struct coord *c, struct question *q, struct err *e)
{
    (void)e;
    q->result = json_array();
    for (size_t i = 0; i < c->n_invites; i++) {
        const struct member_invite *v = &c->invites[i];
        json_array_append_new(
            q->result,
            json_pack("{s:s%, s:I, s:I, s:s, s:b}", "digest", v->digest, (size_t)12, "created_s",
                      (json_int_t)v->created_s, "expires_s", (json_int_t)v->expires_s, "used_by",
                      v->used_by, "good", !v->used_by[0] && v->expires_s > coord_unix_s(c)));
    }
    return 0;
}

static int verb_key_ls(struct coord *c, struct question *q, struct err *e)
{
    (void)e;
    q->result = json_array();
    for (size_t i = 0; i < c->n_api_keys; i++)
        json_array_append_new(q->result,
                              json_pack("{s:s, s:I, s:I}", "name", c->api_keys[i].name, "created_s",
                                        (json_int_t)c->api_keys[i].created_s, "weight",
                                        (json_int_t)c->api_keys[i].weight));
    return 0;
}

static int verb_key_create(struct coord *c, struct question *q, struct err *e)
{
    const char *name;
    char key[API_KEY_TEXT];
    int rc = admin_text(q, "name", &name, e);
    if (rc == 0)
        rc = api_keys_create(c, name, admin_number(q, "weight", 1), key, e);
    if (rc == 0)
        q->result = json_pack("{s:s, s:s}", "name", name, "key", key);
    return rc;
}

static int verb_key_rm(struct coord *c, struct question *q, struct err *e)
{
    const char *name;
    int rc = admin_text(q, "name", &name, e);
    return rc < 0 ? rc : api_keys_remove(c, name, e);
}

const struct admin_verb admin_key_verbs[] = {
    {"token.create", verb_token_create, true},
    {"token.ls", verb_token_ls, false},
    {"key.create", verb_key_create, true},
    {"key.ls", verb_key_ls, false},
    {"key.rm", verb_key_rm, true},
    {NULL, NULL, false},
};
