#include "coordinator/api_keys.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "common/vector.h"
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

int api_keys_create(struct coord *c, const char *name, uint64_t weight, char key[API_KEY_TEXT],
                    struct err *e)
{
    uint8_t chance[24];
    int rc = key_name_check(name, e);
    if (rc < 0)
        return rc;
    if (!weight || weight > API_KEY_MAX_WEIGHT)
        return err_set(e, HP_EINVAL, "the weight of an API key is 1 to %d, not %llu",
                       API_KEY_MAX_WEIGHT, (unsigned long long)weight);
    for (size_t i = 0; i < c->n_api_keys; i++)
        if (strcmp(c->api_keys[i].name, name) == 0) {
            err_set(e, HP_EEXIST, "there is an API key \"%.60s\" already", name);
            err_hint(e,
                     "nobody can show it again: `hpctl key rm %.60s` takes it back, and its name "
                     "is free",
                     name);
            return HP_EEXIST;
        }
    c->env->random_bytes(c->env->ctx, chance, sizeof chance);
    snprintf(key, API_KEY_TEXT, "hp-");
    sodium_bin2hex(key + 3, API_KEY_TEXT - 3, chance, sizeof chance);
    struct api_key *k = vector_add(c->api_keys, c->n_api_keys, c->room_api_keys);
    if (!k)
        return err_set(e, HP_ENOMEM, "no memory for an API key");
    join_token_secret_digest(key, k->digest);
    utf8_copy(k->name, sizeof k->name, name);
    k->created_s = coord_unix_s(c);
    k->weight = (uint32_t)weight;
    effects_store_json(c, "key", k->digest,
                       json_pack("{s:s, s:I, s:I}", "name", k->name, "created_s",
                                 (json_int_t)k->created_s, "weight", (json_int_t)k->weight));
    return 0;
}

int api_keys_remove(struct coord *c, const char *name, struct err *e)
{
    for (size_t i = 0; i < c->n_api_keys; i++)
        if (strcmp(c->api_keys[i].name, name) == 0) {
            effects_forget(c, "key", c->api_keys[i].digest);
            vector_remove(c->api_keys, c->n_api_keys, i);
            return 0;
        }
    return err_set(e, HP_ENOENT, "there is no API key \"%.60s\"", name);
}

const struct api_key *api_keys_find(const struct coord *c, const char *text)
{
    char digest[65];
    join_token_secret_digest(text, digest);
    const struct api_key *found = NULL;
    for (size_t i = 0; i < c->n_api_keys; i++)
        if (key_equal(c->api_keys[i].digest, digest))
            found = &c->api_keys[i];
    return found;
}

int api_keys_restore(struct coord *c, const char *digest, json_t *record, struct err *e)
{
    struct api_key *k = vector_add(c->api_keys, c->n_api_keys, c->room_api_keys);
    if (!k)
        return err_set(e, HP_ENOMEM, "no memory for API keys");
    utf8_copy(k->digest, sizeof k->digest, digest);
    utf8_copy(k->name, sizeof k->name, json_string_value(json_object_get(record, "name")));
    k->created_s = (uint64_t)json_integer_value(json_object_get(record, "created_s"));
    json_int_t weight = json_integer_value(json_object_get(record, "weight"));
    k->weight = weight > 0 && weight <= API_KEY_MAX_WEIGHT ? (uint32_t)weight : 1;
    return 0;
}

void api_keys_free(struct coord *c)
{
    free(c->api_keys);
}
