#include "coordinator/lossy_links.h"

#include "common/log.h"

static void window_begin(const struct coord *c, struct member_link *l)
{
    l->losses.from_segments = l->losses.segments;
    l->losses.from_lost = l->losses.lost;
    l->losses.from_ns = coord_now(c);
    l->losses.times = 0;
}

static void loss_tell(const struct member *from, struct member_link *l)
{
    bool worse = l->loss_told > 0;
    l->loss_told = l->loss;
    l->lossy_told++;
    l->due_ns = 0; /* measured once nothing runs there */
    if (worse)
        log_warn_limited("coordinator", "link_lossier", "from=%s to=%s loss=%.2g", from->name,
                         l->to->name, l->loss);
    else
        log_warn_limited("coordinator", "link_lossy", "from=%s to=%s loss=%.2g", from->name,
                         l->to->name, l->loss);
}

static void loss_set(struct coord *c, const struct member *from, struct member_link *l, double loss)
{
    bool began = l->loss <= 0 && loss > 0, ended = l->loss > 0 && loss <= 0,
         worse = l->loss > 0 && loss >= LOSSY_WORSE * l->loss_told;
    /* Counts are small: what is half as much again may be the same. */
    if (began || ended || worse || loss > 1.5 * l->loss || loss * 1.5 < l->loss) {
        l->loss = loss;
        c->links_version++;
    }
    if (ended) {
        l->loss_told = 0;
        log_limited(LOG_INFO, "coordinator", "link_sound", "from=%s to=%s", from->name,
                    l->to->name);
    } else if (began || worse) {
        loss_tell(from, l);
    }
}

/* A network that is crowded for a moment loses many at once; one that is bad does so again and
 * again. */
static void window_judge(struct coord *c, const struct member *from, struct member_link *l)
{
    uint64_t n = l->losses.segments - l->losses.from_segments,
             lost = l->losses.lost - l->losses.from_lost;
    double loss = n ? (double)lost / (double)n : 0;
    bool lossy = l->losses.times >= LOSSY_TIMES && loss >= LOSSY_LEAST,
         over = n >= LOSSY_SEGMENTS || (n >= LOSSY_SOUND_SEGMENTS && !lost);
    if (lossy)
        loss_set(c, from, l, loss < 1 ? loss : 1);
    else if (over && l->loss > 0 && loss < LOSSY_SOUND)
        loss_set(c, from, l, 0);
    if (lossy || over || coord_now(c) - l->losses.from_ns > coord_ms(LOSSY_WINDOW_MS))
        window_begin(c, l);
}

static void link_told(struct coord *c, const struct member *from, struct member_link *l,
                      const struct message_loss *t)
{
    bool anew = !l->losses.segments || t->segments < l->losses.segments || /* another process */
                t->lost < l->losses.lost;
    l->losses.times += !anew && t->lost > l->losses.lost;
    l->losses.segments = t->segments;
    l->losses.lost = t->lost;
    if (anew)
        window_begin(c, l);
    else
        window_judge(c, from, l);
}

static struct member *member_of_bytes(struct coord *c, struct pack_span key)
{
    char text[KEY_TEXT];
    if (key.size != KEY_BYTES)
        return NULL;
    key_encode(key.data, text);
    return member_of_key(c, text);
}

void lossy_links_told(struct coord *c, struct member *from, const struct message_losses *t)
{
    const struct message_loss *rows = t->losses.items;
    for (size_t i = 0; i < t->losses.count; i++) {
        const struct member *to = member_of_bytes(c, rows[i].peer); /* not hpctl */
        struct member_link *l = to && to != from ? links_make(from, to) : NULL;
        if (l && rows[i].segments)
            link_told(c, from, l, &rows[i]);
    }
}

struct lossy_hashes lossy_links_hash(const struct coord *c)
{
    struct lossy_hashes h = {0};
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->n_members; k++) {
            const struct member *from = c->members[i], *to = c->members[k];
            const struct member_link *l = links_cell(from, to);
            h.told = h.told * UINT64_C(0x100000001b3) + (l ? l->lossy_told : 0);
            if (k < i)
                h.which = h.which * UINT64_C(0x100000001b3) + (links_loss(from, to) > 0);
        }
    return h;
}
