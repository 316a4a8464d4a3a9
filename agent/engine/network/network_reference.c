/* Nodes that the reference runs, one by one. */
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"

struct reference_step {
    int node, n_in, n_out;
    struct ndarray *arrays;     /* [n_in + n_out]: sizes; data while it runs */
    const struct ndarray **in;  /* [n_in], of these; NULL: left out */
    struct network_view *views; /* [n_in + n_out]; root -1: left out, or known */
    struct ndarray *made;       /* [n_out] */
};

static void reference_free(void *data)
{
    struct reference_step *s = data;
    free(s->arrays);
    free(s->in);
    free(s->views);
    free(s->made);
    free(s);
}

static int output_take(struct network_plan *p, struct reference_step *s, int i, struct err *e)
{
    const struct ndarray *wanted = &s->arrays[s->n_in + i], *a = &s->made[i];
    const struct network_view *v = &s->views[s->n_in + i];
    if (v->root < 0)
        return 0;
    if (a->type != wanted->type || !ndarray_same_shape(a, wanted))
        return err_set(e, HP_ESTALE, "a size depends on what the inputs hold");
    int rc = network_here_out(p, v->root, e);
    if (rc == 0)
        memcpy(network_out(p, v), a->data, ndarray_bytes(a));
    return rc;
}

static int reference_run(struct network_plan *p, const struct network_step *step, struct err *e)
{
    struct reference_step *s = step->data;
    union {
        const void *in;
        void *out;
    } data;
    int rc = 0;
    for (int i = 0; i < s->n_in; i++)
        if (s->views[i].root >= 0) {
            if ((rc = network_here_in(p, s->views[i].root, e)) < 0)
                return rc;
            data.in = network_root_data(p, s->views[i].root);
            s->arrays[i].data = (char *)data.out +
                                (size_t)s->views[i].offset * ndarray_type_bytes(s->arrays[i].type);
        }
    memset(s->made, 0, (size_t)s->n_out * sizeof *s->made);
    rc = network_node_run(p->network, s->node, s->in, false, s->made, e);
    for (int i = 0; i < s->n_out && rc == 0; i++)
        rc = output_take(p, s, i, e);
    for (int i = 0; i < s->n_out; i++)
        ndarray_free(&s->made[i]);
    return rc;
}

static int inputs_need(struct network_plan *p, struct reference_step *s, const struct onnx_node *k,
                       struct err *e)
{
    int rc = 0;
    for (int i = 0; i < s->n_in && rc == 0; i++) {
        s->views[i].root = -1;
        if (k->inputs[i] < 0)
            continue;
        const struct network_value *v = &p->values[k->inputs[i]];
        s->arrays[i] = v->array;
        s->arrays[i].owned = false;
        s->in[i] = &s->arrays[i];
        if (!v->is_known)
            rc = network_need(p, k->inputs[i], LAYOUT_PLAIN, &s->views[i], e);
    }
    for (int i = 0; i < s->n_out && rc == 0; i++) {
        s->views[s->n_in + i].root = -1;
        if (k->outputs[i] < 0)
            continue;
        s->arrays[s->n_in + i] = p->values[k->outputs[i]].array;
        struct nn_view dense = network_sizes(&s->arrays[s->n_in + i]);
        rc = network_make_view(p, k->outputs[i], &dense, &s->views[s->n_in + i], e);
    }
    return rc;
}

int network_lower_reference(struct network_plan *p, int node, struct err *e)
{
    const struct onnx_node *k = &p->o->nodes[node];
    struct reference_step *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "a step");
    size_t n = (size_t)k->n_inputs + (size_t)k->n_outputs + 1;
    *s = (struct reference_step){.node = node, .n_in = k->n_inputs, .n_out = k->n_outputs};
    s->arrays = calloc(n, sizeof *s->arrays);
    s->views = calloc(n, sizeof *s->views);
    s->in = calloc(n, sizeof *s->in);
    s->made = calloc(n, sizeof *s->made);
    int rc = s->arrays && s->views && s->in && s->made ? inputs_need(p, s, k, e)
                                                       : err_no_memory(e, "a step");
    if (rc < 0) {
        reference_free(s);
        return rc;
    }
    for (int i = 0; i < s->n_in + s->n_out; i++)
        if (s->views[i].root >= 0)
            network_root_use(p, s->views[i].root);
    struct network_step step = {
        .run = reference_run, .free = reference_free, .data = s, .name = "reference", .node = node};
    rc = network_step_add(p, &step, e);
    return rc < 0 ? rc : 1;
}
