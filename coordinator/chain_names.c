#include "coordinator/chain_names.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/api_keys.h"
#include "coordinator/clients.h"
#include "coordinator/model_slots.h"

enum { ROOT_TEXT = 1024 };

/* Whose tokens may be found by whom, in words. */
static void owner_print(const struct coord *c, const struct deployment *d, const struct sequence *s,
                        char *out, size_t size)
{
    const char *key = client_key(s->client);
    const struct api_key *k = key ? api_keys_named(c, key) : NULL;
    const char *digest = k ? k->digest : NULL;
    if (!sequence_may_share(s) || d->spec.prefix_cache == PREFIX_CACHE_OFF || (key && !digest))
        snprintf(out, size, "request %llu of %llu", (unsigned long long)s->request,
                 (unsigned long long)d->id);
    else if (d->spec.prefix_cache == PREFIX_CACHE_SHARED || !key)
        snprintf(out, size, "all");
    else
        snprintf(out, size, "key %s", digest);
}

struct digest chain_names_root(const struct coord *c, const struct deployment *d,
                               const struct sequence *s)
{
    uint32_t long_from = d->model->facts.long_from;
    char text[ROOT_TEXT], owner[ROOT_TEXT / 2];
    owner_print(c, d, s, owner, sizeof owner);
    int n = snprintf(text, sizeof text, "chain 1\n%s\n%s\n%s\n%s\n%d\n%s", d->model->key,
                     deployment_spec_compute(&d->spec), kv_format_word(d->spec.kv),
                     frame_dtype_word(deployment_wire(d)),
                     long_from && s->n_prompt + s->max_tokens > long_from, owner);
    assert(n > 0 && (size_t)n < sizeof text); /* hashes and words */
    return digest_of(text, (size_t)n);
}

struct digest chain_names_next(const struct digest *before, const uint32_t *ids)
{
    uint8_t all[DIGEST_BYTES + KV_PAGE_TOKENS * sizeof *ids];
    memcpy(all, before->bytes, DIGEST_BYTES);
    memcpy(all + DIGEST_BYTES, ids, KV_PAGE_TOKENS * sizeof *ids);
    return digest_of(all, sizeof all);
}
