#include "coordinator/admin_int.h"
#include "coordinator/api_keys.h"
#include "coordinator/invites.h"

enum { ADMIN_TOKEN_TTL_S = 3600 };

static int verb_token_create(struct coord *c, struct question *q, struct err *e)
{
    char token[JOIN_TOKEN_TEXT];
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

/* What a key has used, and what is left of its budgets (null: it has none). */
static json_t *key_used(const struct coord *c, struct api_key *k)
{
    json_t *used = key_meter_json(&k->meter, coord_clock(c), coord_unix_s(c));
    uint64_t left = key_meter_left(&k->meter, &k->limits, coord_clock(c));
    json_object_set_new(used, "tokens_left",
                        left == UINT64_MAX ? json_null() : json_integer((json_int_t)left));
    return used;
}

static int verb_key_ls(struct coord *c, struct question *q, struct err *e)
{
    q->result = json_array();
    for (struct api_key *k = c->api_keys; k; k = k->hh.next) {
        json_t *row = json_pack("{s:s, s:I, s:o}", "name", k->name, "created_s",
                                (json_int_t)k->created_s, "used", key_used(c, k));
        bool whole = row && key_limits_write(&k->limits, row);
        if (json_array_append_new(q->result, row) < 0 || !whole) {
            json_decref(q->result);
            q->result = NULL;
            return err_no_memory(e, "the list of API keys");
        }
    }
    return 0;
}

static int verb_key_create(struct coord *c, struct question *q, struct err *e)
{
    const char *name;
    char key[API_KEY_TEXT];
    int rc = admin_text(q, "name", &name, e);
    if (rc == 0)
        rc = api_keys_create(c, name, q->arguments, key, e);
    if (rc == 0)
        q->result = json_pack("{s:s, s:s}", "name", name, "key", key);
    return rc;
}

static int verb_key_edit(struct coord *c, struct question *q, struct err *e)
{
    const char *name;
    int rc = admin_text(q, "name", &name, e);
    return rc < 0 ? rc : api_keys_edit(c, name, q->arguments, e);
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
    {"key.edit", verb_key_edit, true},
    {"key.ls", verb_key_ls, false},
    {"key.rm", verb_key_rm, true},
    {NULL, NULL, false},
};
