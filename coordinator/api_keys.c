#include "coordinator/api_keys.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/suggestion.h"
#include "common/utf8.h"
#include "coordinator/effects.h"

/* Names of keys are printed on terminals and asked for again: refused, not mended. */
static int key_name_check(const char *name, struct err *e)
{
    size_t n = strlen(name), most = sizeof((struct api_key *)0)->name - 1;
    if (n == 0 || n > most)
        return err_set(e, HP_EINVAL, "the name of an API key has 1 to %zu bytes, this one %zu",
                       most, n);
    uint32_t c;
    for (int length; *name; name += length)
        if ((length = utf8_decode(name, strlen(name), &c)) <= 0 || c < 0x20 ||
            (c >= 0x7f && c < 0xa0))
            return err_set(e, HP_EINVAL, "the name of an API key has no control characters");
    return 0;
}

/* ---- the table ---- */

const char *client_key(const char *client)
{
    static const char key[] = "key ";
    return strncmp(client, key, sizeof key - 1) == 0 ? client + sizeof key - 1 : NULL;
}

struct api_key *api_keys_named(const struct coord *c, const char *name)
{
    struct api_key *k;
    HASH_FIND_STR(c->api_keys, name, k);
    return k;
}

static struct api_key *key_of_client(const struct coord *c, const char *client)
{
    const char *name = client ? client_key(client) : NULL;
    return name ? api_keys_named(c, name) : NULL;
}

const struct api_key *api_keys_find(const struct coord *c, const char *text)
{
    char digest[65];
    join_token_secret_digest(text, digest);
    const struct api_key *found = NULL;
    for (const struct api_key *k = c->api_keys; k; k = k->hh.next)
        if (key_equal(k->digest, digest))
            found = k;
    return found;
}

static void api_key_destroy(struct api_key *k)
{
    key_limits_fini(&k->limits);
    free(k);
}

/* A key without limits, in the table. NULL: no memory. */
static struct api_key *key_add(struct coord *c, const char *name)
{
    struct api_key *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    key_limits_init(&k->limits);
    utf8_copy(k->name, sizeof k->name, name);
    HASH_ADD_STR(c->api_keys, name, k);
    if (!map_has_added(k)) {
        free(k);
        return NULL;
    }
    c->n_api_keys++;
    return k;
}

static void key_drop(struct coord *c, struct api_key *k)
{
    HASH_DEL(c->api_keys, k);
    c->n_api_keys--;
    api_key_destroy(k);
}

/* ---- making and changing ---- */

static void key_store(struct coord *c, const struct api_key *k)
{
    json_t *record =
        json_pack("{s:s, s:I}", "name", k->name, "created_s", (json_int_t)k->created_s);
    if (record && !key_limits_write(&k->limits, record)) {
        json_decref(record);
        record = NULL;
    }
    effects_store_json(c, "key", k->digest, record);
}

int api_keys_create(struct coord *c, const char *name, const json_t *limits, char key[API_KEY_TEXT],
                    struct err *e)
{
    uint8_t chance[24];
    int rc = key_name_check(name, e);
    if (rc < 0)
        return rc;
    if (api_keys_named(c, name)) {
        err_set(e, HP_EEXIST, "there is an API key \"%.60s\" already", name);
        err_hint(e,
                 "nobody can show it again: `hpctl key rm %.60s` takes it back, and its name "
                 "is free; `hpctl key edit %.60s` changes its limits",
                 name, name);
        return HP_EEXIST;
    }
    struct api_key *k = key_add(c, name);
    if (!k)
        return err_set(e, HP_ENOMEM, "no memory for an API key");
    rc = limits ? key_limits_change(&k->limits, limits, e) : 0;
    if (rc < 0) {
        key_drop(c, k);
        return rc;
    }
    c->env->random_bytes(c->env->ctx, chance, sizeof chance);
    snprintf(key, API_KEY_TEXT, "hp-");
    sodium_bin2hex(key + 3, API_KEY_TEXT - 3, chance, sizeof chance);
    join_token_secret_digest(key, k->digest);
    k->created_s = coord_unix_s(c);
    key_store(c, k);
    return 0;
}

static int key_missing(const struct coord *c, const char *name, struct err *e)
{
    struct suggestion near = {0};
    for (const struct api_key *k = c->api_keys; k; k = k->hh.next)
        suggestion_try(&near, name, k->name);
    err_set(e, HP_ENOENT, "there is no API key \"%.60s\"", name);
    return near.best ? err_hint(e, "did you mean \"%s\"? `hpctl key ls` lists them", near.best)
                     : HP_ENOENT;
}

int api_keys_edit(struct coord *c, const char *name, const json_t *limits, struct err *e)
{
    struct api_key *k = api_keys_named(c, name);
    int rc = k ? key_limits_change(&k->limits, limits, e) : key_missing(c, name, e);
    if (rc == 0)
        key_store(c, k);
    return rc;
}

int api_keys_remove(struct coord *c, const char *name, struct err *e)
{
    struct api_key *k = api_keys_named(c, name);
    if (!k)
        return key_missing(c, name, e);
    effects_forget(c, "key", k->digest);
    effects_forget(c, "key_use", k->digest);
    key_drop(c, k);
    return 0;
}

/* ---- what a client may do ---- */

int api_keys_may_use(const struct coord *c, const char *client, const char *model, struct err *e)
{
    const char *name = client ? client_key(client) : NULL;
    const struct api_key *k = name ? api_keys_named(c, name) : NULL;
    if (!name || (k && key_limits_allow(&k->limits, model)))
        return 0;
    return err_set(e, HP_EDENIED, "the API key \"%.60s\" may not use the model \"%.100s\"%s", name,
                   model, k ? "" : ": it was taken back");
}

int api_keys_check(const struct coord *c, const char *client, uint64_t requests, uint64_t tokens,
                   double *wait_s, struct err *e)
{
    struct api_key *k = key_of_client(c, client);
    *wait_s = 0;
    if (!k)
        return 0;
    int rc = key_meter_check(&k->meter, &k->limits, coord_clock(c), requests, tokens, wait_s, e);
    k->meter.n_refused += rc < 0;
    k->used |= rc < 0;
    return rc;
}

double api_keys_wait_s(const struct coord *c, const char *client)
{
    struct api_key *k = key_of_client(c, client);
    struct err ignored;
    double wait_s = 0;
    if (k)
        key_meter_check(&k->meter, &k->limits, coord_clock(c), 0, 1, &wait_s, &ignored);
    return wait_s;
}

void api_keys_count_request(const struct coord *c, const char *client)
{
    struct api_key *k = key_of_client(c, client);
    if (!k)
        return;
    key_meter_request(&k->meter, &k->limits, coord_clock(c));
    k->used = true;
}

void api_keys_count_tokens(const struct coord *c, const char *client, uint64_t prompt,
                           uint64_t output)
{
    struct api_key *k = key_of_client(c, client);
    if (!k)
        return;
    key_meter_tokens(&k->meter, &k->limits, coord_clock(c), prompt, output);
    k->used = true;
}

void api_keys_return_tokens(const struct coord *c, const char *client, uint64_t prompt)
{
    struct api_key *k = key_of_client(c, client);
    if (!k)
        return;
    key_meter_return(&k->meter, &k->limits, coord_clock(c), prompt);
    k->used = true;
}

uint64_t api_keys_left(const struct coord *c, const char *client)
{
    struct api_key *k = key_of_client(c, client);
    return k ? key_meter_left(&k->meter, &k->limits, coord_clock(c)) : UINT64_MAX;
}

bool api_keys_view(const struct coord *c, const char *client, struct request_limits *out)
{
    struct api_key *k = key_of_client(c, client);
    if (k)
        key_meter_view(&k->meter, &k->limits, coord_clock(c), out);
    out->some_models = k && k->limits.models;
    return k != NULL;
}

/* ---- the store ---- */

static void use_store(struct coord *c, struct api_key *k)
{
    k->used = false;
    k->stored_ns = coord_clock(c);
    effects_store_json(c, "key_use", k->digest,
                       key_meter_json(&k->meter, k->stored_ns, coord_unix_s(c)));
}

/* What could not be written is written when the disk has room. */
void api_keys_tick(struct coord *c)
{
    for (struct api_key *k = c->api_keys; k; k = k->hh.next)
        if (c->read_only.code)
            k->used = true;
        else if (k->used && coord_clock(c) - k->stored_ns >= coord_ms(API_KEY_STORE_MS))
            use_store(c, k);
}

void api_keys_store_use(struct coord *c)
{
    for (struct api_key *k = c->api_keys; k; k = k->hh.next)
        if (k->used)
            use_store(c, k);
}

int api_keys_restore(struct coord *c, const char *digest, json_t *record, struct err *e)
{
    const char *name = json_string_value(json_object_get(record, "name"));
    if (!name || api_keys_named(c, name))
        return err_set(e, HP_EPARSE, "the record of an API key has no name of its own");
    struct api_key *k = key_add(c, name);
    if (!k)
        return err_set(e, HP_ENOMEM, "no memory for API keys");
    int rc = key_limits_change(&k->limits, record, e);
    if (rc < 0) {
        key_drop(c, k);
        return rc;
    }
    utf8_copy(k->digest, sizeof k->digest, digest);
    k->created_s = (uint64_t)json_integer_value(json_object_get(record, "created_s"));
    return 0;
}

int api_keys_restore_use(struct coord *c, const char *digest, json_t *record, struct err *e)
{
    for (struct api_key *k = c->api_keys; k; k = k->hh.next)
        if (strcmp(k->digest, digest) == 0)
            return key_meter_restore(&k->meter, record, coord_clock(c), coord_unix_s(c), e);
    return 0; /* its key was put aside, or could not be read */
}

void api_keys_free(struct coord *c)
{
    while (c->api_keys) {
        struct api_key *k = c->api_keys;
        HASH_DEL(c->api_keys, k);
        api_key_destroy(k);
    }
}
