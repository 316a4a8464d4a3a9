#include "coordinator/chain_names.h"

#include <stdio.h>
#include <string.h>

#include "common/bytes.h"
#include "coordinator/api_keys.h"
#include "coordinator/model_slots.h"

/* Whose tokens may be found by whom, in words. */
static void owner_print(const struct coord *c, const struct deployment *d, const struct sequence *s,
                        struct buffer *out)
{
    static const char key[] = "key ";
    const char *digest = NULL;
    bool keyed = strncmp(s->client, key, sizeof key - 1) == 0;
    for (size_t i = 0; keyed && i < c->n_api_keys; i++)
        if (strcmp(c->api_keys[i].name, s->client + sizeof key - 1) == 0)
            digest = c->api_keys[i].digest;
    if (!sequence_may_share(s) || d->spec.prefix_cache == PREFIX_CACHE_OFF || (keyed && !digest))
        buffer_printf(out, "request %llu of %llu", (unsigned long long)s->request,
                      (unsigned long long)d->id);
    else if (d->spec.prefix_cache == PREFIX_CACHE_SHARED || !keyed)
        buffer_printf(out, "all");
    else
        buffer_printf(out, "key %s", digest);
}

struct digest chain_names_root(const struct coord *c, const struct deployment *d,
                               const struct sequence *s)
{
    uint32_t long_from = d->model->facts.long_from;
    struct buffer b = {0};
    buffer_printf(&b, "chain 1\n%s\n%s\n%s\n%s\n%d\n", d->model->id,
                  deployment_spec_compute(&d->spec), kv_format_word(d->spec.kv),
                  frame_dtype_word(deployment_wire(d)),
                  long_from && s->n_prompt + s->max_tokens > long_from);
    owner_print(c, d, s, &b);
    struct digest root = digest_of(b.data, b.size); /* without memory: one that nobody looks for */
    buffer_free(&b);
    return root;
}

struct digest chain_names_next(const struct digest *before, const uint32_t *ids)
{
    uint8_t all[DIGEST_BYTES + KV_PAGE_TOKENS * sizeof *ids];
    memcpy(all, before->bytes, DIGEST_BYTES);
    memcpy(all + DIGEST_BYTES, ids, KV_PAGE_TOKENS * sizeof *ids);
    return digest_of(all, sizeof all);
}
