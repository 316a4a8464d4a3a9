/* Operators as oneDNN's primitives, and cut into parts for several threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/nn_int.h"

/* ---- making ---- */

static dnnl_status_t attr_make(const struct nn_posts *posts, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t list;
    dnnl_status_t rc = dnnl_primitive_attr_create(out);
    if (rc != dnnl_success)
        return rc;
    rc = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (rc == dnnl_success && posts && posts->n > 0 &&
        (rc = dnnl_post_ops_create(&list)) == dnnl_success) {
        for (int i = 0; i < posts->n && rc == dnnl_success; i++) {
            const struct nn_post *p = &posts->list[i];
            dnnl_memory_desc_t other;
            if (p->kind == NN_POST_FUNCTION)
                rc = dnnl_post_ops_append_eltwise(list, 1, nn_function_kind(p->function), p->a,
                                                  p->b);
            else if ((rc = nn_view_describe(&p->other, &other)) == dnnl_success)
                rc = dnnl_post_ops_append_binary(
                    list, p->kind == NN_POST_ADD ? dnnl_binary_add : dnnl_binary_mul, &other);
        }
        if (rc == dnnl_success)
            rc = dnnl_primitive_attr_set_post_ops(*out, list);
        dnnl_post_ops_destroy(list);
    }
    if (rc != dnnl_success)
        dnnl_primitive_attr_destroy(*out);
    return rc;
}

static dnnl_status_t arg_add(struct nn *n, struct nn_piece *p, int slot, int arg,
                             const dnnl_memory_desc_t *desc)
{
    if (!desc || desc->ndims == 0)
        return dnnl_success;
    dnnl_exec_arg_t *a = &p->args[p->n_args];
    a->arg = arg;
    dnnl_status_t rc = dnnl_memory_create(&a->memory, desc, n->engine, DNNL_MEMORY_NONE);
    if (rc == dnnl_success)
        p->slots[p->n_args++] = slot;
    return rc;
}

static dnnl_status_t args_make(struct nn *n, struct nn_piece *p, const_dnnl_primitive_desc_t pd,
                               const struct nn_posts *posts)
{
    static const struct {
        int slot, arg;
        dnnl_query_t what;
        int index;
    } every[] = {{NN_X, DNNL_ARG_SRC, dnnl_query_src_md, 0},
                 {NN_WEIGHTS, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                 {NN_BIAS, DNNL_ARG_BIAS, dnnl_query_weights_md, 1},
                 {NN_Y, DNNL_ARG_DST, dnnl_query_dst_md, 0},
                 {NN_SCRATCH, DNNL_ARG_SCRATCHPAD, dnnl_query_scratchpad_md, 0}};
    dnnl_status_t rc = dnnl_success;
    for (size_t i = 0; i < sizeof every / sizeof *every && rc == dnnl_success; i++)
        rc = arg_add(n, p, every[i].slot, every[i].arg,
                     dnnl_primitive_desc_query_md(pd, every[i].what, every[i].index));
    for (int i = 0; posts && i < posts->n && rc == dnnl_success; i++) {
        dnnl_memory_desc_t other;
        if (posts->list[i].kind != NN_POST_FUNCTION &&
            (rc = nn_view_describe(&posts->list[i].other, &other)) == dnnl_success)
            rc = arg_add(n, p, NN_OTHER + i, DNNL_ARG_ATTR_MULTIPLE_POST_OP(i) | DNNL_ARG_SRC_1,
                         &other);
    }
    return rc;
}

static const char *kernel_name(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return name ? name : "";
}

/* Plain loops of oneDNN's are slower than falling back, and so are matrices of one channel each. */
static bool is_slow(const_dnnl_primitive_desc_t pd, bool depthwise)
{
    const char *name = kernel_name(pd);
    return strncmp(name, "ref", 3) == 0 || strncmp(name, "simple", 6) == 0 ||
           (depthwise && strstr(name, "gemm:"));
}

/* ---- one primitive ---- */

/* What one says of itself. */
struct piece_facts {
    char name[64];
    size_t scratch_bytes;
    bool has_weights;
    dnnl_memory_desc_t given, packed;
};

static void facts_note(const_dnnl_primitive_desc_t pd, const struct nn_wish *w,
                       struct piece_facts *f)
{
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    *f = (struct piece_facts){.scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0,
                              .has_weights = w->has_weights,
                              .given = w->given};
    snprintf(f->name, sizeof f->name, "%s", kernel_name(pd));
    if (w->has_weights)
        f->packed = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
}

/* The kernel of that name; NULL: the one that oneDNN likes best. */
static dnnl_status_t kernel_find(struct nn *n, const struct nn_wish *w,
                                 const_dnnl_primitive_attr_t attr, const char *name,
                                 dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t kernels;
    dnnl_status_t rc = dnnl_primitive_desc_iterator_create(&kernels, &w->u, attr, n->engine, NULL);
    if (rc != dnnl_success)
        return rc;
    *out = dnnl_primitive_desc_iterator_fetch(kernels);
    while (*out && name && strcmp(kernel_name(*out), name) != 0) {
        dnnl_primitive_desc_destroy(*out);
        *out = NULL;
        if (dnnl_primitive_desc_iterator_next(kernels) == dnnl_success)
            *out = dnnl_primitive_desc_iterator_fetch(kernels);
    }
    dnnl_primitive_desc_iterator_destroy(kernels);
    return *out ? dnnl_success : dnnl_unimplemented;
}

/* By the same kernel and with the same packed weights as another, where that is given. */
static dnnl_status_t piece_make(struct nn *n, const struct nn_task *t,
                                const struct piece_facts *like, struct nn_piece *out,
                                struct piece_facts *f)
{
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    struct nn_wish w;
    *out = (struct nn_piece){0};
    dnnl_status_t rc = nn_wish_make(t, like && like->has_weights ? &like->packed : NULL, &w);
    rc = rc == dnnl_success ? attr_make(w.posts, &attr) : rc;
    if (rc != dnnl_success)
        return rc;
    rc = kernel_find(n, &w, attr, like ? like->name : NULL, &pd);
    dnnl_primitive_attr_destroy(attr);
    if (rc != dnnl_success)
        return rc;
    rc = is_slow(pd, w.is_depthwise) ? dnnl_unimplemented
                                     : dnnl_primitive_create(&out->primitive, pd);
    rc = rc == dnnl_success ? args_make(n, out, pd, w.posts) : rc;
    if (rc == dnnl_success)
        facts_note(pd, &w, f);
    else
        nn_piece_free(out);
    dnnl_primitive_desc_destroy(pd);
    return rc;
}

/* ---- cut for several threads ---- */

/* A part by the same kernel as the whole, which so gives the same bits. */
static bool part_make(struct nn *n, const struct nn_task *whole, const struct piece_facts *f,
                      const struct nn_cut *cut, int part, struct nn_piece *out,
                      size_t *scratch_bytes)
{
    struct nn_task t;
    struct piece_facts own;
    int64_t offsets[NN_SLOTS];
    if (!nn_task_part(whole, cut, part, &t, offsets) ||
        piece_make(n, &t, f, out, &own) != dnnl_success)
        return false;
    for (int i = 0; i < NN_SLOTS; i++)
        out->offsets[i] = (ptrdiff_t)offsets[i] * (ptrdiff_t)sizeof(float);
    *scratch_bytes = own.scratch_bytes > *scratch_bytes ? own.scratch_bytes : *scratch_bytes;
    return true;
}

static int threads_for(const struct nn *n, const struct nn_task *t)
{
    double parts = nn_task_work(t) / n->least_work;
    return parts < n->n_threads ? (int)parts : n->n_threads;
}

/* In place of the whole, where all parts can be made. */
static bool op_cut(struct nn *n, struct nn_op *op, const struct nn_task *t,
                   const struct piece_facts *f, int threads)
{
    struct nn_cut cut = nn_task_cut(t, threads);
    struct nn_piece *pieces = cut.n_parts > 1 ? calloc((size_t)cut.n_parts, sizeof *pieces) : NULL;
    size_t scratch = 0;
    int made = 0;
    if (!pieces)
        return false;
    while (made < cut.n_parts && part_make(n, t, f, &cut, made, &pieces[made], &scratch))
        made++;
    if (made < cut.n_parts) {
        for (int i = 0; i < made; i++)
            nn_piece_free(&pieces[i]);
        free(pieces);
        return false;
    }
    nn_piece_free(op->pieces);
    free(op->pieces);
    op->pieces = pieces;
    op->n_pieces = cut.n_parts;
    op->scratch_bytes = scratch;
    return true;
}

/* Some kernels want parts of a certain size: then fewer threads do it. */
static void op_cut_most(struct nn *n, struct nn_op *op, const struct nn_task *t,
                        const struct piece_facts *f)
{
    int threads = threads_for(n, t);
    while (threads > 1 && !op_cut(n, op, t, f, threads))
        threads = threads > 3 ? threads / 2 : threads - 1;
}

static int op_make(struct nn *n, const struct nn_task *t, struct nn_op **out, struct err *e)
{
    struct nn_op *op = calloc(1, sizeof *op);
    struct piece_facts f;
    if (!op || !(op->pieces = calloc(1, sizeof *op->pieces))) {
        free(op);
        return err_no_memory(e, "a primitive");
    }
    dnnl_status_t rc = piece_make(n, t, NULL, op->pieces, &f);
    if (rc != dnnl_success) {
        nn_op_free(&op);
        return rc == dnnl_out_of_memory
                   ? err_no_memory(e, "a primitive")
                   : err_set(e, HP_EUNSUPPORTED, "oneDNN has no such primitive (status %d)",
                             (int)rc);
    }
    op->n_pieces = 1;
    op->has_weights = f.has_weights;
    op->given = f.given;
    op->packed = f.packed;
    op->scratch_bytes = f.scratch_bytes;
    op_cut_most(n, op, t, &f);
    *out = op;
    return 0;
}

int nn_conv_make(struct nn *n, const struct nn_conv *c, struct nn_op **out, struct err *e)
{
    return op_make(n, &(struct nn_task){.kind = NN_TASK_CONV, .u.conv = *c}, out, e);
}

int nn_matmul_make(struct nn *n, const struct nn_matmul *m, struct nn_op **out, struct err *e)
{
    return op_make(n, &(struct nn_task){.kind = NN_TASK_MATMUL, .u.matmul = *m}, out, e);
}

int nn_softmax_make(struct nn *n, const struct nn_view *x, int axis, bool is_log,
                    struct nn_op **out, struct err *e)
{
    const struct nn_task t = {.kind = NN_TASK_SOFTMAX, .u.softmax = {*x, axis, is_log}};
    return op_make(n, &t, out, e);
}

int nn_function_make(struct nn *n, const struct nn_view *x, enum nn_function f, float a, float b,
                     struct nn_op **out, struct err *e)
{
    const struct nn_task t = {.kind = NN_TASK_ELEMENTS, .u.elements = {*x, f, a, b}};
    return op_make(n, &t, out, e);
}
