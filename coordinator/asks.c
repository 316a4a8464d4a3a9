#include "coordinator/asks.h"

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "common/vector.h"
#include "coordinator/member.h"

struct agent_ask *asks_add(struct coord *c, enum message_type type, const struct member *asked,
                           uint64_t peer, uint64_t ask, uint64_t until_ns)
{
    if (c->n_asks >= COORD_MAX_ASKS)
        return NULL;
    struct agent_ask *r = vector_add(c->asks, c->n_asks, c->room_asks);
    if (!r)
        return NULL;
    *r = (struct agent_ask){.id = env_random_u64(c->env) | 1,
                            .peer = peer,
                            .ask = ask,
                            .type = type,
                            .awaited = 1,
                            .until_ns = until_ns};
    utf8_copy(r->asked, sizeof r->asked, asked ? asked->name : "");
    return r;
}

struct agent_ask *asks_find(struct coord *c, uint64_t id, enum message_type type)
{
    for (size_t i = 0; i < c->n_asks; i++)
        if (c->asks[i].id == id && c->asks[i].type == type)
            return &c->asks[i];
    return NULL;
}

struct agent_ask *asks_answered(struct coord *c, const struct member *by, uint64_t id,
                                enum message_type type)
{
    struct agent_ask *r = asks_find(c, id, type);
    return r && (!r->asked[0] || strcmp(r->asked, by->name) == 0) ? r : NULL;
}

void asks_end(struct coord *c, struct agent_ask *r)
{
    vector_remove(c->asks, c->n_asks, (size_t)(r - c->asks));
}

void asks_peer_gone(struct coord *c, uint64_t peer)
{
    for (size_t i = 0; i < c->n_asks; i++)
        if (c->asks[i].peer == peer)
            c->asks[i].peer = 0;
}

void asks_free(struct coord *c)
{
    free(c->asks);
}
