#include "planners/coldstart/dominators.h"

#include <stdlib.h>
#include <string.h>

int dominators_find(const struct coldstart_problem *p, int *positions)
{
    int *position = calloc((size_t)p->n_nodes, sizeof *position), n = 0;
    if (!position)
        return HP_ENOMEM;
    int last_source = 0;
    for (int i = 0; i < p->n_ops; i++) {
        int v = p->topological[i];
        position[v] = i;
        if (p->op_inputs_at[v] == p->op_inputs_at[v + 1])
            last_source = i;
    }
    /* An operator dominates when no edge leads past it: neither from an earlier operator nor from
     * the graph's input, and when no output lies before it. */
    int reach = last_source;
    bool output_before = false;
    for (int i = 0; i < p->n_ops; i++) {
        int v = p->topological[i];
        if (reach <= i && !output_before)
            positions[n++] = i;
        for (int k = p->readers_at[v]; k < p->readers_at[v + 1]; k++)
            reach = position[p->readers[k]] > reach ? position[p->readers[k]] : reach;
        output_before = output_before || p->readers_at[v] == p->readers_at[v + 1];
    }
    free(position);
    return n;
}

static uint64_t hash_mix(uint64_t h, uint64_t x)
{
    h ^= x + 0x9E3779B97F4A7C15u + (h << 6) + (h >> 2);
    h *= 0xBF58476D1CE4E5B9u;
    return h ^ (h >> 29);
}

static uint64_t mix_number(uint64_t h, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return hash_mix(h, bits);
}

static uint64_t own_hash(const struct coldstart_problem *p, int v)
{
    const struct opgraph *g = p->graph;
    uint64_t h = mix_number(p->is_op[v] ? 1 : 2, p->bytes[v]);
    if (!p->is_op[v])
        return mix_number(h, g->nodes[v].load_s);
    h = mix_number(h, g->nodes[v].host_read_bytes);
    for (int d = 0; d < p->n_devices; d++)
        h = mix_number(mix_number(h, g->nodes[v].exec_s[d]), g->nodes[v].host_exec_s[d]);
    return h;
}

/* A node's hash takes in those of its neighbours; after `HASH_ROUNDS` rounds, of all nodes within
 * that many edges. */
enum { HASH_ROUNDS = 6 };

static void hash_neighbours(const struct coldstart_problem *p, const uint64_t *from, uint64_t *to)
{
    const struct opgraph *g = p->graph;
    for (int v = 0; v < p->n_nodes; v++) {
        uint64_t in = 0, out = 0;
        for (int k = g->inputs_at[v]; k < g->inputs_at[v + 1]; k++)
            in += hash_mix(3, from[g->inputs[k]]);
        for (int k = p->readers_at[v]; k < p->readers_at[v + 1]; k++)
            out += hash_mix(5, from[p->readers[k]]);
        to[v] = hash_mix(hash_mix(from[v], in), out);
    }
}

struct keyed {
    uint64_t hash;
    int segment, node;
    uint64_t key; /* hash and the number of equal ones before it in its segment */
};

static int compare_in_segment(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    if (x->segment != y->segment)
        return x->segment < y->segment ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

static int compare_keys(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

/* The stretch between dominators that an operator is in; a parameter is where its first reader is.
 */
static int find_segments(const struct coldstart_problem *p, int *segment)
{
    int *positions = calloc((size_t)p->n_ops, sizeof *positions);
    int n = positions ? dominators_find(p, positions) : HP_ENOMEM, next = 0;
    for (int i = 0; n >= 0 && i < p->n_ops; i++) {
        int v = p->topological[i];
        segment[v] = next;
        if (next < n && positions[next] == i)
            next++;
    }
    for (int v = 0; n >= 0 && v < p->n_nodes; v++)
        if (!p->is_op[v])
            segment[v] = segment[p->readers[p->readers_at[v]]];
    free(positions);
    return n < 0 ? n : 0;
}

static int list_classes(const struct coldstart_problem *p, const struct keyed *sorted,
                        struct arena *arena, struct node_classes *c)
{
    size_t n = (size_t)p->n_nodes;
    c->class_of = arena_alloc(arena, n, sizeof(int));
    c->members_at = arena_alloc(arena, n + 1, sizeof(int));
    c->members = arena_alloc(arena, n, sizeof(int));
    c->op_classes = arena_alloc(arena, n, sizeof(int));
    c->param_classes = arena_alloc(arena, n, sizeof(int));
    if (!c->class_of || !c->members_at || !c->members || !c->op_classes || !c->param_classes)
        return HP_ENOMEM;
    for (int i = 0; i < p->n_nodes; i++) {
        if (i == 0 || sorted[i].key != sorted[i - 1].key) {
            c->members_at[c->n] = i;
            if (p->is_op[sorted[i].node])
                c->op_classes[c->n_op_classes++] = c->n;
            else
                c->param_classes[c->n_param_classes++] = c->n;
            c->n++;
        }
        c->class_of[sorted[i].node] = c->n - 1;
        c->members[i] = sorted[i].node;
    }
    c->members_at[c->n] = p->n_nodes;
    return 0;
}

int node_classes_find(const struct coldstart_problem *p, struct arena *arena,
                      struct node_classes *out)
{
    size_t n = (size_t)p->n_nodes;
    uint64_t *hash = calloc(2 * n, sizeof *hash), *next = hash + n;
    struct keyed *keyed = calloc(n, sizeof *keyed);
    int *segment = calloc(n, sizeof *segment),
        rc = hash && keyed && segment ? find_segments(p, segment) : HP_ENOMEM;
    struct node_classes c = {0};
    if (rc == 0) {
        for (int v = 0; v < p->n_nodes; v++)
            hash[v] = own_hash(p, v);
        for (int round = 0; round < HASH_ROUNDS; round++) {
            hash_neighbours(p, hash, next);
            memcpy(hash, next, n * sizeof *hash);
        }
        for (int v = 0; v < p->n_nodes; v++)
            keyed[v] = (struct keyed){hash[v], segment[v], v, 0};
        qsort(keyed, n, sizeof *keyed, compare_in_segment);
        for (uint64_t i = 0, nth = 0; i < n; i++) {
            nth = i > 0 && keyed[i].hash == keyed[i - 1].hash &&
                          keyed[i].segment == keyed[i - 1].segment
                      ? nth + 1
                      : 0;
            keyed[i].key = hash_mix(keyed[i].hash, nth);
        }
        qsort(keyed, n, sizeof *keyed, compare_keys);
        rc = list_classes(p, keyed, arena, &c);
    }
    free(hash);
    free(keyed);
    free(segment);
    if (rc == 0)
        *out = c;
    return rc;
}
