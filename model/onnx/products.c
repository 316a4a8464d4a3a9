#include "model/onnx/products.h"

#include <math.h>
#include <string.h>

#include "model/onnx/call.h"

/* A matrix inside an array: elements between its rows and between its columns. */
struct onnx_matrix {
    const struct ndarray *array;
    int64_t first, row, column;
};

/* out[m, n] from `first` on += a[m, k] * b[k, n]. */
static void matrix_product(const struct ndarray *out, int64_t first, int64_t m, int64_t n,
                           int64_t k, struct onnx_matrix a, struct onnx_matrix b)
{
    if (out->type == ND_F32 && b.column == 1) {
        const float *x = a.array->data, *y = b.array->data;
        float *o = (float *)out->data + first;
        for (int64_t i = 0; i < m; i++)
            for (int64_t p = 0; p < k; p++) {
                float v = x[a.first + i * a.row + p * a.column];
                const float *line = y + b.first + p * b.row;
                for (int64_t j = 0; j < n; j++)
                    o[i * n + j] += v * line[j];
            }
        return;
    }
    bool is_float = ndarray_type_is_float(out->type);
    for (int64_t i = 0; i < m * n; i++) {
        int64_t at_a = a.first + i / n * a.row, at_b = b.first + i % n * b.column;
        uint64_t whole = 0; /* of integers, which wrap */
        double sum = 0;
        for (int64_t p = 0; p < k; p++)
            if (is_float)
                sum += ndarray_f64(a.array, at_a + p * a.column) *
                       ndarray_f64(b.array, at_b + p * b.row);
            else
                whole += (uint64_t)ndarray_i64(a.array, at_a + p * a.column) *
                         (uint64_t)ndarray_i64(b.array, at_b + p * b.row);
        if (is_float)
            ndarray_set_f64(out, first + i, ndarray_f64(out, first + i) + sum);
        else
            ndarray_set_i64(out, first + i,
                            (int64_t)((uint64_t)ndarray_i64(out, first + i) + whole));
    }
}

/* The shape of a matrix product's input: a vector is a row on the left and a column on the right.
 */
static struct ndarray matrices_of(const struct ndarray *a, bool left)
{
    struct ndarray m = *a;
    if (m.n_dims == 1) {
        m.n_dims = 2;
        m.dims[left] = m.dims[0];
        m.dims[!left] = 1;
    }
    return m;
}

/* What is in front of its matrices. */
static struct ndarray stack_of(const struct ndarray *matrices)
{
    struct ndarray stack = {.type = matrices->type, .n_dims = matrices->n_dims - 2};
    memcpy(stack.dims, matrices->dims, sizeof stack.dims);
    return stack;
}

int onnx_run_matmul(struct onnx_call *c)
{
    /* A vector's axis of one goes again. */
    bool is_row = c->in[0]->n_dims == 1, is_column = c->in[1]->n_dims == 1;
    struct ndarray x = matrices_of(c->in[0], true), y = matrices_of(c->in[1], false);
    int rc = call_types_agree(c);
    if (rc < 0 || x.n_dims == 0 || y.n_dims == 0 || x.n_dims == ND_DIMS_MAX)
        return rc < 0 ? rc : call_fail(c, "of %d and %d dimensions", x.n_dims, y.n_dims);
    int64_t m = x.dims[x.n_dims - 2], k = x.dims[x.n_dims - 1], n = y.dims[y.n_dims - 1];
    if (y.dims[y.n_dims - 2] != k) {
        char a[ND_SHAPE_TEXT], b[ND_SHAPE_TEXT];
        return call_fail(c, "%s times %s", ndarray_shape_text(c->in[0], a),
                         ndarray_shape_text(c->in[1], b));
    }
    struct ndarray stacks[] = {stack_of(&x), stack_of(&y)}, stack;
    const struct ndarray *two[] = {&stacks[0], &stacks[1]};
    rc = call_broadcast(c, two, 2, &stack);
    if (rc < 0 || stack.n_dims + 2 > ND_DIMS_MAX)
        return rc < 0 ? rc : call_fail(c, "too many dimensions");
    int n_dims = stack.n_dims;
    int64_t dims[ND_DIMS_MAX];
    memcpy(dims, stack.dims, sizeof dims);
    if (!is_row)
        dims[n_dims++] = m;
    if (!is_column)
        dims[n_dims++] = n;
    rc = call_make(c, 0, x.type, n_dims, dims);
    struct nd_walk w;
    walk_begin(&w, &stack, two, 2);
    for (int64_t i = 0; rc == 0 && c->out->count > 0 && i < stack.count; i++, walk_next(&w))
        matrix_product(c->out, i * m * n, m, n, k,
                       (struct onnx_matrix){c->in[0], w.offset[0] * m * k, k, 1},
                       (struct onnx_matrix){c->in[1], w.offset[1] * k * n, n, 1});
    return rc;
}

/* The product in the output, times alpha, and beta times what is added to it. */
static int gemm_add(struct onnx_call *c, double alpha, double beta)
{
    const struct ndarray *add = call_in(c, 2), *out = c->out;
    const uint64_t times = (uint64_t)(int64_t)alpha, add_times = (uint64_t)(int64_t)beta;
    const bool is_float = ndarray_type_is_float(out->type);
    struct nd_walk w;
    if (add) {
        const struct ndarray *both[] = {out, add};
        struct ndarray shape;
        int rc = call_broadcast(c, both, 2, &shape);
        if (rc < 0 || !ndarray_same_shape(&shape, out))
            return call_fail(c, "what it adds does not fit %lld x %lld", (long long)out->dims[0],
                             (long long)out->dims[1]);
        walk_begin(&w, out, &add, 1);
    }
    for (int64_t i = 0; i < out->count; i++) {
        if (is_float)
            ndarray_set_f64(out, i,
                            alpha * ndarray_f64(out, i) +
                                (add ? beta * ndarray_f64(add, w.offset[0]) : 0));
        else
            ndarray_set_i64(
                out, i,
                (int64_t)(times * (uint64_t)ndarray_i64(out, i) +
                          (add ? add_times * (uint64_t)ndarray_i64(add, w.offset[0]) : 0)));
        if (add)
            walk_next(&w);
    }
    return 0;
}

int onnx_run_gemm(struct onnx_call *c)
{
    const struct ndarray *a = c->in[0], *b = c->in[1];
    bool turn_a = call_int(c, "transA", 0) != 0, turn_b = call_int(c, "transB", 0) != 0;
    double alpha = call_float(c, "alpha", 1), beta = call_float(c, "beta", 1);
    bool is_float = ndarray_type_is_float(a->type);
    int rc = call_types_agree(c);
    if (rc == 0 && !is_float && (!(fabs(alpha) < 0x1p31) || !(fabs(beta) < 0x1p31)))
        return call_fail(c, "alpha %g and beta %g of %s", alpha, beta, ndarray_type_name(a->type));
    if (rc < 0 || a->n_dims != 2 || b->n_dims != 2)
        return rc < 0 ? rc : call_fail(c, "of %d and %d dimensions", a->n_dims, b->n_dims);
    int64_t m = a->dims[turn_a], k = a->dims[!turn_a], n = b->dims[!turn_b], dims[] = {m, n};
    if (b->dims[turn_b] != k)
        return call_fail(c, "%lld columns times %lld rows", (long long)k,
                         (long long)b->dims[turn_b]);
    rc = call_make(c, 0, a->type, 2, dims);
    if (rc < 0)
        return rc;
    matrix_product(c->out, 0, m, n, k, (struct onnx_matrix){a, 0, turn_a ? 1 : k, turn_a ? m : 1},
                   (struct onnx_matrix){b, 0, turn_b ? 1 : n, turn_b ? k : 1});
    return gemm_add(c, alpha, beta);
}

/* ---- sums over letters ---- */

/* "ij,jk->ik": each letter is an axis, "..." a few that broadcast (written as '0' and on, counted
 * from the last). Letters that the output lacks are summed over. */
enum { LETTERS_MAX = 3 * ND_DIMS_MAX, TERMS_MAX = WALK_ARRAYS_MAX };
struct einsum {
    char terms[TERMS_MAX][ND_DIMS_MAX + 1], out[ND_DIMS_MAX + 1];
    char letters[LETTERS_MAX + 1]; /* of the output first */
    int64_t sizes[LETTERS_MAX];
    int n_terms, n_letters, n_out, most_dots;
};

/* One term: letters, dots as so many digits. Returns what follows it, NULL where it is none. */
static const char *term_read(const char *at, int dots, char out[ND_DIMS_MAX + 1])
{
    int n = 0;
    for (; *at && *at != ',' && *at != '-'; at++) {
        if (*at == ' ')
            continue;
        if (strncmp(at, "...", 3) == 0) {
            for (int i = dots; i > 0 && n < ND_DIMS_MAX; i--)
                out[n++] = (char)('0' + i);
            at += 2;
        } else if ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z')) {
            if (n == ND_DIMS_MAX)
                return NULL;
            out[n++] = *at;
        } else {
            return NULL;
        }
    }
    out[n] = '\0';
    return at;
}

/* Letters of a term without its dots. */
static int term_letters(const char *at, bool *has_dots)
{
    int n = 0;
    *has_dots = false;
    for (; *at && *at != ',' && *at != '-'; at++) {
        n += (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');
        *has_dots |= *at == '.';
    }
    return n;
}

/* Where nothing says so, the output has the dots and then, in order, letters that come once. */
static void implicit_out(struct einsum *s, const char *equation)
{
    int n = 0;
    for (int i = s->most_dots; i > 0 && n < ND_DIMS_MAX; i--)
        s->out[n++] = (char)('0' + i);
    for (int letter = 'A'; letter <= 'z' && n < ND_DIMS_MAX; letter++) {
        const char *first = strchr(equation, letter);
        bool is_letter = (letter >= 'A' && letter <= 'Z') || letter >= 'a';
        if (is_letter && first && !strchr(first + 1, letter))
            s->out[n++] = (char)letter;
    }
    s->out[n] = '\0';
}

static int letter_add(const struct onnx_call *c, struct einsum *s, char letter, int64_t size)
{
    int i = 0;
    while (i < s->n_letters && s->letters[i] != letter)
        i++;
    if (i == s->n_letters) {
        if (i == LETTERS_MAX)
            return call_fail(c, "too many letters");
        s->letters[s->n_letters] = letter;
        s->sizes[s->n_letters++] = 1;
    }
    if (size != s->sizes[i] && size != 1 && s->sizes[i] != 1)
        return call_fail(c, "an axis of %lld and one of %lld", (long long)s->sizes[i],
                         (long long)size);
    s->sizes[i] = size != 1 ? size : s->sizes[i];
    return 0;
}

static int einsum_read(const struct onnx_call *c, struct einsum *s)
{
    const char *equation = call_string(c, "equation", ""), *at = equation;
    bool has_dots;
    *s = (struct einsum){.n_terms = c->n_in};
    if (c->n_in > TERMS_MAX)
        return err_set(c->e, HP_EUNSUPPORTED, "of %d terms", c->n_in);
    for (int pass = 0; pass < 2; pass++, at = equation) /* first how many axes dots stand for */
        for (int i = 0; i < c->n_in; i++) {
            int dots = c->in[i]->n_dims - term_letters(at, &has_dots);
            if (dots < 0 || (dots > 0 && !has_dots))
                return call_fail(c, "its equation does not fit input %d", i);
            s->most_dots = dots > s->most_dots ? dots : s->most_dots;
            at = term_read(at, dots, s->terms[i]);
            if (!at || (i + 1 < c->n_in ? *at++ != ',' : *at == ','))
                return call_fail(c, "its equation \"%.60s\" does not fit %d inputs", equation,
                                 c->n_in);
        }
    const char *arrow = strstr(equation, "->");
    if (!arrow)
        implicit_out(s, equation);
    else if (!(at = term_read(arrow + 2, s->most_dots, s->out)) || *at)
        return call_fail(c, "its equation \"%.60s\" cannot be read", equation);
    s->n_out = (int)strlen(s->out);
    for (int d = 0; d < s->n_out; d++) {
        int before = s->n_letters, rc = letter_add(c, s, s->out[d], 1);
        if (rc < 0 || s->n_letters == before)
            return rc < 0 ? rc : call_fail(c, "its output has an axis twice");
    }
    for (int i = 0; i < c->n_in; i++)
        for (int d = 0; s->terms[i][d]; d++) {
            int rc = letter_add(c, s, s->terms[i][d], c->in[i]->dims[d]);
            if (rc < 0)
                return rc;
        }
    return s->n_letters > ND_DIMS_MAX ? err_set(c->e, HP_EUNSUPPORTED, "over %d axes", s->n_letters)
                                      : 0;
}

int onnx_run_einsum(struct onnx_call *c)
{
    struct einsum s;
    int rc = call_types_agree(c);
    rc = rc < 0 ? rc : einsum_read(c, &s);
    rc = rc < 0 ? rc : call_make(c, 0, c->in[0]->type, s.n_out, s.sizes);
    if (rc < 0)
        return rc;
    struct nd_walk w = {.n_dims = s.n_letters, .n_arrays = s.n_terms};
    memcpy(w.dims, s.sizes, (size_t)s.n_letters * sizeof *w.dims);
    struct ndarray products; /* whose number is no larger than any array's may be */
    if (ndarray_shape(&products, ND_F32, w.n_dims, w.dims, c->e) < 0)
        return HP_EINVAL;
    int64_t all = products.count, summed = dims_product(w.dims, s.n_out, w.n_dims);
    for (int i = 0; i < s.n_terms; i++) {
        int64_t strides[ND_DIMS_MAX];
        dims_strides(c->in[i]->dims, c->in[i]->n_dims, strides);
        for (int d = 0; s.terms[i][d]; d++)
            if (c->in[i]->dims[d] != 1)
                w.strides[i][strchr(s.letters, s.terms[i][d]) - s.letters] += strides[d];
    }
    double sum = 0;
    for (int64_t k = 0; k < all; k++, walk_next(&w)) {
        double term = 1;
        for (int i = 0; i < s.n_terms; i++)
            term *= ndarray_f64(c->in[i], w.offset[i]);
        sum = k % summed == 0 ? term : sum + term;
        ndarray_set_f64(c->out, k / summed, sum);
    }
    return 0;
}
