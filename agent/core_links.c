/* Owns the links of a stage: where they lead, and that they are made anew when they broke. */
#include "agent/core_links.h"

#include <stdlib.h>
#include <string.h>

#include "agent/core_out.h"
#include "common/log.h"

static const uint64_t LINK_TELL_NS = 60000000000u;

static void address_keep(uint8_t **address, size_t *size, struct pack_span from)
{
    free(*address);
    *address = from.size ? malloc(from.size) : NULL;
    *size = *address ? from.size : 0;
    if (*address)
        memcpy(*address, from.data, from.size);
}

static void device_keep(char **device, const char *from)
{
    free(*device);
    *device = from[0] ? strdup(from) : NULL;
}

static void links_make(struct agent_core *c, struct core_stage *s)
{
    struct agent_action *a = core_act(c, AGENT_DO_CONNECT);
    s->link_broken = false;
    if (!a)
        return;
    a->u.connect.slot = s->slot;
    a->u.connect.session = s->prepare.input_session;
    a->u.connect.next = (struct pack_span){s->next_address, s->next_size};
    a->u.connect.first = (struct pack_span){s->first_address, s->first_size};
    a->u.connect.next_device = s->next_device ? s->next_device : "";
    a->u.connect.first_device = s->first_device ? s->first_device : "";
}

static bool address_is(const uint8_t *address, size_t size, struct pack_span other)
{
    return size == other.size && (!size || memcmp(address, other.data, size) == 0);
}

bool core_stage_links_are(const struct core_stage *s, const struct message_stage_connect *m)
{
    uint64_t next = m->next_session ? m->next_session : s->prepare.session,
             first = m->first_session ? m->first_session : s->prepare.session;
    return !s->link_broken && address_is(s->next_address, s->next_size, m->next_address) &&
           address_is(s->first_address, s->first_size, m->first_address) &&
           s->next_session == next && s->first_session == first;
}

void core_stage_links_set(struct agent_core *c, struct core_stage *s,
                          const struct message_stage_connect *m)
{
    address_keep(&s->next_address, &s->next_size, m->next_address);
    address_keep(&s->first_address, &s->first_size, m->first_address);
    s->next_session = m->next_session ? m->next_session : s->prepare.session;
    s->first_session = m->first_session ? m->first_session : s->prepare.session;
    device_keep(&s->next_device, m->next_device ? m->next_device : "");
    device_keep(&s->first_device, m->first_device ? m->first_device : "");
    s->connected = true;
    links_make(c, s);
}

void core_stage_links_mend(struct agent_core *c, struct core_stage *s)
{
    if (s->connected && s->link_broken)
        links_make(c, s);
}

/* Not each time that it is tried again: an agent that is gone for days does not fill the log. */
static void link_down_tell(struct agent_core *c, struct core_stage *s, enum agent_link link)
{
    uint64_t now = env_now_ns(c->env);
    if (s->link_told_ns && now - s->link_told_ns < LINK_TELL_NS)
        return;
    s->link_told_ns = now;
    log_warn("agent", "link_down", "deployment=%llu stage=%llu link=%s",
             (unsigned long long)s->prepare.deployment, (unsigned long long)s->prepare.stage,
             link == AGENT_LINK_NEXT ? "next" : "first");
}

void core_stage_link_broke(struct agent_core *c, struct core_stage *s, enum agent_link link)
{
    link_down_tell(c, s, link);
    s->link_broken = true;
}
