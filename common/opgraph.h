/* One host's cold start: its buses and devices, and a model as operators and parameters (file
 * format hp-graph/1).
 *
 * Nodes are known by their index; names may repeat. Parameters lie in host memory and are read by
 * operators only. A graph that was read is sound: it has no cycle, every parameter has a reader,
 * every operator has times for every device, and every device is on a bus. */
#ifndef HP_COMMON_OPGRAPH_H
#define HP_COMMON_OPGRAPH_H

#include <stdbool.h>

#include "common/arena.h"
#include "common/json.h"
#include "common/status.h"

enum {
    OPGRAPH_MAX_NODES = 200000,
    OPGRAPH_MAX_EDGES = 2000000,
    OPGRAPH_MAX_DEVICES = 64,
    OPGRAPH_MAX_BUSES = 64
};

struct opgraph_device {
    const char *name;
    double memory_bytes;
    int bus;
};

struct opgraph_node {
    const char *name;
    bool is_op;
    double bytes;  /* to load, or of the operator's output */
    double load_s; /* a parameter's measured copy over an idle bus; negative: bytes / bandwidth */
    double host_read_bytes; /* of an operator that reads its parameters in place */
    double *exec_s;      /* [n_devices] of an operator, parameters resident; NULL for a parameter */
    double *host_exec_s; /* [n_devices] with parameters read from host memory */
};

struct opgraph {
    struct arena arena; /* owns all below */
    const char *model;  /* "" when the file does not say */
    double *bus_bytes_per_s;
    int n_buses;
    struct opgraph_device *devices;
    int n_devices;
    double *peer_bytes_per_s; /* [from * n_devices + to]; 0: no path */
    double load_overhead_s;   /* of every copy of a parameter */
    struct opgraph_node *nodes;
    int n_nodes, n_ops;
    /* Edges without duplicates: the inputs of node v are inputs[inputs_at[v] .. inputs_at[v + 1]),
     * ascending. */
    int *inputs_at, *inputs;
    int *readers_at, *readers; /* the operators that read node v, ascending */
    int *topological; /* [n_ops] operators, each after its inputs; the lower index first where both
                         may come */
};

/* Reads a file or a document. Zero-initialise before; on failure nothing is left to free. HP_EPARSE
 * names file, path and value; HP_ELIMIT where the graph is larger than the limits above. */
int opgraph_load(const char *file, struct opgraph *out, struct err *e);
int opgraph_from_json(const struct json_at *at, struct opgraph *out, struct err *e);
void opgraph_free(struct opgraph *g);

/* Bytes per second from device a to device b; 0: no path. */
static inline double opgraph_peer(const struct opgraph *g, int a, int b)
{
    return g->peer_bytes_per_s[a * g->n_devices + b];
}

#endif
