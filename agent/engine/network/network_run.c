/* Running plans, whole and cut. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "agent/engine/network/network_int.h"
#include "common/bytes.h"

static void inputs_put(struct network_plan *p, const struct ndarray *const *inputs)
{
    for (int i = 0; i < p->o->n_inputs; i++)
        memcpy(p->arena + p->roots[p->in_roots[i]].offset, inputs[i]->data,
               ndarray_bytes(inputs[i]));
}

static int step_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    int rc = network_stopped(p->network, e);
    if (rc < 0)
        return rc;
    return p->facts->device && s->run_there ? s->run_there(p, s, e) : s->run(p, s, e);
}

static int steps_end(struct network_plan *p, int end, int rc, struct err *e)
{
    struct err ignored = {0};
    if (!p->facts->device)
        return rc;
    int ended = network_there_end(p, end, rc < 0 ? &ignored : e);
    return rc < 0 ? rc : ended;
}

/* Steps of which the host has what enters; then it has what leaves. */
static int steps_run(struct network_plan *p, int first, int end, struct err *e)
{
    int rc = p->facts->device ? network_there_begin(p, first, e) : 0;
    for (int i = first; i < end && rc == 0; i++)
        rc = step_run(p, &p->steps[i], e);
    return steps_end(p, end, rc, e);
}

/* Where an output lies, of the sizes that it has. */
static struct ndarray output_at(const struct network_plan *p, int i)
{
    const struct network_value *v = &p->values[p->o->outputs[i]];
    struct ndarray a = v->array;
    a.owned = false;
    if (v->is_known || a.count == 0)
        return a;
    const struct network_view *view =
        network_view_is(&v->view.v, LAYOUT_PLAIN) ? &v->view : &v->copies[LAYOUT_PLAIN];
    union {
        const void *in;
        void *out;
    } data = {network_root_data(p, view->root)};
    if (data.in)
        a.data = (char *)data.out + (size_t)view->offset * ndarray_type_bytes(a.type);
    return a;
}

static int output_give(struct network_plan *p, int i, struct ndarray *out, struct err *e)
{
    struct ndarray made = output_at(p, i);
    int rc = 0;
    if (!out->type)
        rc = ndarray_make(out, made.type, made.n_dims, made.dims, UINT64_MAX, e);
    else if (out->type != made.type || !ndarray_same_shape(out, &made))
        rc = err_set(e, HP_EINVAL, "output %d has other sizes", i);
    if (rc == 0 && made.count > 0)
        memcpy(out->data, made.data, ndarray_bytes(&made));
    return rc;
}

static int outputs_give(struct network_plan *p, struct ndarray *outputs, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < p->o->n_outputs && rc == 0; i++)
        rc = output_give(p, i, &outputs[i], e);
    for (int i = 0; rc < 0 && i < p->o->n_outputs; i++)
        ndarray_free(&outputs[i]);
    return rc;
}

int network_plan_run(struct network_plan *p, const struct ndarray *const *inputs,
                     struct ndarray *outputs, struct err *e)
{
    nn_begin(p->nn);
    inputs_put(p, inputs);
    int rc = steps_run(p, 0, p->n_steps, e);
    rc = rc < 0 ? rc : outputs_give(p, outputs, e);
    return rc < 0 ? rc : onnx_check(p->o, e);
}

/* Steps here, or put on the device, with a look or a mark after each where one is wanted; the
 * host's clock is the last word of when all began and ended. */
static int steps_run_timed(struct network_plan *p, int first, int end, const struct env *env,
                           bool each, uint64_t *stamps_ns, struct err *e)
{
    const struct network_device *d = p->facts->device;
    int rc = d ? network_there_begin(p, first, e) : 0;
    for (int i = first; i < end && rc == 0; i++) {
        rc = step_run(p, &p->steps[i], e);
        if (each && d)
            d->arrays->clock_mark(p->clock, i - first + 1, d->stream);
        else if (each)
            stamps_ns[i - first + 1] = env_now_ns(env);
    }
    rc = steps_end(p, end, rc, e);
    for (int i = 1; each && d && i < end - first && rc == 0; i++) {
        double seconds = 0;
        rc = d->arrays->clock_between(p->clock, 0, i, &seconds, e);
        stamps_ns[i] = stamps_ns[0] + (uint64_t)(seconds * 1e9);
    }
    return rc;
}

static int clock_begin(struct network_plan *p, struct err *e)
{
    const struct network_device *d = p->facts->device;
    int rc = p->clock ? 0 : d->arrays->clock_create(d->device, p->n_steps + 1, &p->clock, e);
    if (rc == 0)
        d->arrays->clock_mark(p->clock, 0, d->stream);
    return rc;
}

int network_plan_run_timed(struct network_plan *p, const struct env *env, bool each,
                           uint64_t *stamps_ns, const struct ndarray *const *inputs,
                           struct ndarray *outputs, struct err *e)
{
    nn_begin(p->nn);
    stamps_ns[0] = env_now_ns(env);
    int rc = each && p->facts->device ? clock_begin(p, e) : 0;
    inputs_put(p, inputs);
    rc = rc < 0 ? rc : steps_run_timed(p, 0, p->n_steps, env, each, stamps_ns, e);
    rc = rc < 0 ? rc : outputs_give(p, outputs, e);
    rc = rc < 0 ? rc : onnx_check(p->o, e);
    stamps_ns[p->n_steps] = env_now_ns(env);
    return rc;
}

int network_plan_node(const struct network_plan *p, int step)
{
    return p->steps[step].node;
}

/* ---- cut ---- */

uint64_t network_plan_crossing(const struct network_plan *p, int at)
{
    uint64_t bytes = 0;
    for (int i = 0; i < p->n_roots; i++)
        bytes += network_root_crosses(&p->roots[i], at) ? p->roots[i].bytes : 0;
    return bytes;
}

/* The step where few bytes cross, near `wanted`, after `first` and before `end`; -1: there is
 * none. */
static int cut_near(const struct network_plan *p, int wanted, int span, int first, int end)
{
    int best = -1;
    uint64_t least = 0;
    for (int at = wanted - span; at <= wanted + span; at++) {
        if (at <= first || at >= end)
            continue;
        uint64_t bytes = network_plan_crossing(p, at);
        if (best < 0 || bytes < least) {
            best = at;
            least = bytes;
        }
    }
    return best;
}

/* What crosses, as bytes and back into an arena that holds nothing else. */
static int roots_hand_on(struct network_plan *p, int at, struct err *e)
{
    struct buffer wire = {0};
    for (int i = 0; i < p->n_roots; i++)
        if (network_root_crosses(&p->roots[i], at))
            buffer_append(&wire, p->arena + p->roots[i].offset, p->roots[i].bytes);
    if (wire.failed) {
        buffer_free(&wire);
        return err_no_memory(e, "what crosses between two stages");
    }
    memset(p->arena, 0xff, p->arena_bytes + p->scratch_bytes);
    size_t from = 0;
    for (int i = 0; i < p->n_roots; i++)
        if (network_root_crosses(&p->roots[i], at)) {
            memcpy(p->arena + p->roots[i].offset, wire.data + from, p->roots[i].bytes);
            from += p->roots[i].bytes;
        }
    buffer_free(&wire);
    return 0;
}

int network_plan_run_at(struct network_plan *p, const int *cuts, int n_cuts,
                        const struct ndarray *const *inputs, struct ndarray *outputs, struct err *e)
{
    int first = 0, rc = 0;
    nn_begin(p->nn);
    inputs_put(p, inputs);
    for (int i = 0; i < n_cuts && rc == 0; i++) {
        rc = steps_run(p, first, cuts[i], e);
        rc = rc < 0 ? rc : roots_hand_on(p, cuts[i], e);
        first = cuts[i];
    }
    rc = rc < 0 ? rc : steps_run(p, first, p->n_steps, e);
    rc = rc < 0 ? rc : outputs_give(p, outputs, e);
    return rc < 0 ? rc : onnx_check(p->o, e);
}

int network_plan_run_cut(struct network_plan *p, int n_stages, const struct ndarray *const *inputs,
                         struct ndarray *outputs, struct err *e)
{
    int first = 0, n_cuts = 0, span = p->n_steps / (2 * n_stages);
    int *cuts = calloc((size_t)n_stages, sizeof *cuts);
    if (!cuts)
        return err_no_memory(e, "a run in stages");
    for (int stage = 1; stage < n_stages; stage++) {
        int wanted = (int)((int64_t)p->n_steps * stage / n_stages);
        int at = cut_near(p, wanted, span, first, p->n_steps);
        if (at >= 0)
            cuts[n_cuts++] = first = at;
    }
    int rc = network_plan_run_at(p, cuts, n_cuts, inputs, outputs, e);
    free(cuts);
    return rc;
}

/* ---- a part alone ---- */

/* Of all that says where values lie and who works on them: plans of one number hand on alike. */
static uint64_t plan_mark(const struct network_plan *p)
{
    uint64_t mark = (uint64_t)p->n_steps;
    for (int i = 0; i < p->n_steps; i++)
        mark = XXH64(p->steps[i].name, strlen(p->steps[i].name), mark + (uint64_t)p->steps[i].node);
    for (int i = 0; i < p->n_roots; i++) {
        const struct network_root *r = &p->roots[i];
        const uint64_t row[] = {r->bytes, (uint64_t)r->first, (uint64_t)r->last};
        mark = r->fixed ? mark : XXH64(row, sizeof row, mark);
    }
    return mark | 1;
}

static struct ndarray bytes_at(const struct network_plan *p, const struct network_root *r)
{
    return (struct ndarray){.type = ND_U8,
                            .n_dims = 1,
                            .dims = {(int64_t)r->bytes},
                            .count = (int64_t)r->bytes,
                            .data = p->arena + r->offset};
}

static struct ndarray mark_at(struct network_plan *p)
{
    p->mark = p->mark ? p->mark : plan_mark(p);
    return (struct ndarray){.type = ND_U64, .n_dims = 1, .dims = {1}, .count = 1, .data = &p->mark};
}

static void border_add(struct ndarray *out, int most, int *n, struct ndarray a)
{
    if (*n < most)
        out[*n] = a;
    ++*n;
}

int network_plan_border(struct network_plan *p, int at, struct ndarray *out, int most)
{
    int n = 0;
    for (int i = 0; at <= 0 && i < p->o->n_inputs; i++) {
        struct ndarray a = p->values[p->o->inputs[i]].array;
        a.data = p->arena + p->roots[p->in_roots[i]].offset;
        border_add(out, most, &n, a);
    }
    for (int i = 0; at >= p->n_steps && i < p->o->n_outputs; i++)
        border_add(out, most, &n, output_at(p, i));
    if (at <= 0 || at >= p->n_steps)
        return n;
    border_add(out, most, &n, mark_at(p));
    for (int i = 0; i < p->n_roots; i++)
        if (network_root_crosses(&p->roots[i], at))
            border_add(out, most, &n, bytes_at(p, &p->roots[i]));
    return n;
}

int network_plan_enter(struct network_plan *p, int at, const struct ndarray *border, int n_border,
                       const struct ndarray *in, int n, struct err *e)
{
    char wanted[ND_SHAPE_TEXT], given[ND_SHAPE_TEXT];
    if (n != n_border)
        return err_set(e, HP_EINVAL, "%d arrays came, and %d are wanted", n, n_border);
    for (int i = 0; i < n; i++) {
        if (in[i].type == border[i].type && ndarray_same_shape(&in[i], &border[i]))
            continue;
        return err_set(e, HP_EINVAL, "array %d (%s) is %s %s, and %s %s is wanted", i,
                       at <= 0 ? p->o->values[p->o->inputs[i]].name : "of what crosses",
                       ndarray_type_name(in[i].type), ndarray_shape_text(&in[i], given),
                       ndarray_type_name(border[i].type), ndarray_shape_text(&border[i], wanted));
    }
    bool marked = at > 0 && at < p->n_steps;
    if (marked && memcmp(in[0].data, border[0].data, sizeof p->mark) != 0)
        return err_set(e, HP_ESTALE,
                       "what came was made by another plan of the network: this machine's CPU, or "
                       "its program, is of another kind than the sender's");
    for (int i = marked; i < n; i++)
        if (in[i].count > 0)
            memcpy(border[i].data, in[i].data, ndarray_bytes(&in[i]));
    return 0;
}

int network_plan_run_part(struct network_plan *p, int first, int end, struct err *e)
{
    nn_begin(p->nn);
    int rc = steps_run(p, first, end, e);
    return rc < 0 ? rc : onnx_check(p->o, e);
}

int network_plan_run_part_timed(struct network_plan *p, int first, int end, const struct env *env,
                                bool each, uint64_t *stamps_ns, struct err *e)
{
    nn_begin(p->nn);
    stamps_ns[0] = env_now_ns(env);
    int rc = each && p->facts->device ? clock_begin(p, e) : 0;
    rc = rc < 0 ? rc : steps_run_timed(p, first, end, env, each, stamps_ns, e);
    rc = rc < 0 ? rc : onnx_check(p->o, e);
    stamps_ns[end - first] = env_now_ns(env);
    return rc;
}

struct network_plan_facts network_plan_describe(const struct network_plan *p)
{
    struct network_plan_facts f = {
        .steps = p->n_steps, .arena_bytes = p->arena_bytes, .scratch_bytes = p->scratch_bytes};
    for (int i = 0; i < p->n_steps; i++) {
        f.reference_steps += strcmp(p->steps[i].name, "reference") == 0;
        f.cut_steps += network_step_is_cut(&p->steps[i]);
    }
    return f;
}
