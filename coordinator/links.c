#include "coordinator/links.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "coordinator/effects.h"
#include "transport/data_address.h"
#include "transport/data_choice.h"

#define LOST_WAIT_S 0.2
#define LEAST_ROUND_S 1e-4
#define SEGMENT_BYTES 1448

struct member_link *links_cell(const struct member *from, const struct member *to)
{
    for (size_t i = 0; i < from->n_links; i++)
        if (from->links[i].to == to)
            return &from->links[i];
    return NULL;
}

struct member_link *links_make(struct member *from, const struct member *to)
{
    struct member_link *l = links_cell(from, to);
    if (!l && (l = vector_add(from->links, from->n_links, from->room_links)) != NULL)
        l->to = to;
    return l;
}

bool links_is_doubted(const struct member *from, const struct member_link *l)
{
    return l->doubted_bytes_per_s > 0 && member_present(from) && member_present(l->to);
}

static double link_loss(const struct member *from, const struct member *to)
{
    const struct member_link *l = links_cell(from, to);
    return l ? l->loss : 0;
}

double links_loss(const struct member *a, const struct member *b)
{
    return fmax(link_loss(a, b), link_loss(b, a));
}

static const struct member_link *link_measured(const struct member *from, const struct member *to)
{
    const struct member_link *l = links_cell(from, to);
    return l && l->bandwidth_bytes_per_s > 0 ? l : NULL;
}

static int paths_given(const struct member *const ways[2][2], struct links_path out[2])
{
    int n = 0;
    for (int w = 0; w < 2; w++) {
        const struct member *from = ways[w][0], *to = ways[w][1];
        const struct cluster_wire *wire =
            from->node && to->node ? member_node_paced_link(from->node, member_paced_as(to)) : NULL;
        if (wire)
            out[n++] = (struct links_path){.from = from, .to = to, .wire = *wire};
    }
    return n;
}

/* What a link is with so many of its packets lost. A frame of a packet or two that is lost waits
 * for TCP's timer, LOST_WAIT_S at least on Linux; what is long goes no faster than Mathis et al.
 * (1997, The macroscopic behavior of the TCP congestion avoidance algorithm, equation 3) say. */
static struct cluster_wire wire_with_loss(struct cluster_wire w, double loss)
{
    const double round_s = fmax(2 * w.latency_s, LEAST_ROUND_S);
    if (loss <= 0)
        return w;
    w.bandwidth_bytes_per_s =
        fmin(w.bandwidth_bytes_per_s, SEGMENT_BYTES * sqrt(1.5) / (round_s * sqrt(loss)));
    w.latency_s += loss * LOST_WAIT_S;
    return w;
}

static bool one_machine(const struct member *a, const struct member *b)
{
    return a->machine[0] && strcmp(a->machine, b->machine) == 0;
}

/* Frames showed that one way is late or loses packets, whether anybody measured it or not. */
static bool way_is_told(const struct member *from, const struct member *to)
{
    const struct member_link *l = links_cell(from, to);
    return l && (l->late_s > 0 || l->loss > 0);
}

/* What a way is without what frames showed: as it was measured; until then as the way back was,
 * and until then as boxes and their cards say. No bandwidth: nothing is known. */
static struct cluster_wire way_usually(const struct member *from, const struct member *to)
{
    const struct member_link *l = link_measured(from, to);
    if (!l)
        l = link_measured(to, from);
    if (l)
        return (struct cluster_wire){l->bandwidth_bytes_per_s, l->latency_s};
    if (one_machine(from, to))
        return (struct cluster_wire){CLUSTER_LOOPBACK_BYTES_PER_S, CLUSTER_LOOPBACK_LATENCY_S};
    if (!from->node || !to->node)
        return (struct cluster_wire){0, 0};
    return cluster_cards_wire(member_node_card(from->node), member_node_card(to->node));
}

static double way_latency_s(const struct member *from, const struct member *to)
{
    const struct member_link *l = links_cell(from, to);
    return way_usually(from, to).latency_s + (l ? l->late_s : 0);
}

/* A latency is half of what frames take there and back: what is late one way is taken for late the
 * other way, too, until both are known to be on time. */
static struct links_path way_path(const struct member *from, const struct member *to)
{
    const struct member_link *l = links_cell(from, to), *measured = link_measured(from, to);
    const struct cluster_wire wire = {way_usually(from, to).bandwidth_bytes_per_s,
                                      fmax(way_latency_s(from, to), way_latency_s(to, from))};
    return (struct links_path){.from = from,
                               .to = to,
                               .wire = wire_with_loss(wire, links_loss(from, to)),
                               .late_s = l ? l->late_s : 0,
                               .loss = l ? l->loss : 0,
                               .measured_s = measured ? measured->measured_s : 0,
                               .assumed = !measured};
}

static int paths_known(const struct member *const ways[2][2], struct links_path out[2])
{
    int n = 0;
    for (int w = 0; w < 2; w++) {
        const struct member *from = ways[w][0], *to = ways[w][1];
        if (!link_measured(from, to) && !way_is_told(from, to))
            continue;
        out[n] = way_path(from, to);
        n += out[n].wire.bandwidth_bytes_per_s > 0;
    }
    return n;
}

int links_paths(const struct member *a, const struct member *b, struct links_path out[2])
{
    const struct member *const ways[2][2] = {{a, b}, {b, a}};
    int n = paths_given(ways, out);
    if (n == 0)
        n = paths_known(ways, out);
    if (n == 0 && one_machine(a, b))
        out[n++] = way_path(a, b);
    if (n == 1)
        out[0].serves_back = true;
    return n;
}

void links_address_text(const struct member *m, char *out, size_t size)
{
    struct data_address a;
    if (data_address_parse(m->address, m->address_size, &a, NULL) == 0)
        snprintf(out, size, "%s %s:%u", data_kind_word(a.kind), a.host, (unsigned)a.port);
    else
        snprintf(out, size, "its data channel");
}

void links_member_removed(struct coord *c, const struct member *m)
{
    if (m->n_links)
        effects_forget(c, "link", m->name);
    for (size_t i = 0; i < c->n_members; i++) {
        struct member *other = c->members[i];
        for (size_t k = other->n_links; k-- > 0;)
            if (other->links[k].to == m)
                vector_remove(other->links, other->n_links, k);
    }
}

void links_keep(struct coord *c, const struct member *m)
{
    json_t *row = json_array();
    for (size_t i = 0; i < m->n_links; i++) {
        const struct member_link *l = &m->links[i];
        if (l->bandwidth_bytes_per_s > 0)
            json_array_append_new(row, json_pack("{s:s, s:f, s:f, s:I}", "to", l->to->name,
                                                 "bandwidth_bytes_per_s", l->bandwidth_bytes_per_s,
                                                 "latency_s", l->latency_s, "measured_s",
                                                 (json_int_t)l->measured_s));
    }
    effects_store_json(c, "link", m->name, row);
}

int links_restore(struct coord *c, const char *name, json_t *record, struct err *e)
{
    struct member *from = member_find(c, name);
    const json_t *row;
    size_t i;
    if (!json_is_array(record))
        return err_set(e, HP_EPARSE, "the store's record link/%s is not a list", name);
    json_array_foreach(record, i, row)
    {
        double bandwidth = json_number_value(json_object_get(row, "bandwidth_bytes_per_s")),
               latency = json_number_value(json_object_get(row, "latency_s"));
        if (!isfinite(bandwidth) || bandwidth <= 0 || !isfinite(latency) || latency < 0)
            return err_set(e, HP_EPARSE, "the store's record link/%s has no speed in row %zu", name,
                           i);
        const char *other = json_string_value(json_object_get(row, "to"));
        const struct member *to = other ? member_find(c, other) : NULL;
        struct member_link *l = from && to ? links_make(from, to) : NULL;
        if (from && to && !l)
            return err_set(e, HP_ENOMEM, "no memory for measured links");
        if (!l)
            continue;
        c->links_version++;
        l->bandwidth_bytes_per_s = bandwidth;
        l->latency_s = latency;
        l->measured_s = (uint64_t)json_integer_value(json_object_get(row, "measured_s"));
    }
    return 0;
}
