/* Products by cuBLASLt, which is loaded where there is one: without it the plugin works all the
 * same, and so it does where its header was not there to compile with. */
#include <cstdlib>
#include <cstring>
#if defined(CUDA_ON_CPU) || __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define HAS_CUBLASLT
#endif
#ifndef CUDA_ON_CPU
#include <dlfcn.h>
#endif

#include "agent/backend/cuda/kernels.h"

#ifdef HAS_CUBLASLT
/* What is used of the library. */
#define BLAS_CALLS(each)                                                                           \
    each(cublasLtCreate) each(cublasLtDestroy) each(cublasLtMatmul)                                \
        each(cublasLtMatmulAlgoGetHeuristic) each(cublasLtMatmulDescCreate)                        \
            each(cublasLtMatmulDescDestroy) each(cublasLtMatmulDescSetAttribute)                   \
                each(cublasLtMatrixLayoutCreate) each(cublasLtMatrixLayoutDestroy)                 \
                    each(cublasLtMatmulPreferenceCreate) each(cublasLtMatmulPreferenceDestroy)     \
                        each(cublasLtMatmulPreferenceSetAttribute)

struct blas_library {
#define BLAS_FIELD(name) decltype(&::name) name;
    BLAS_CALLS(BLAS_FIELD)
};

/* The way that was found for a shape. */
struct blas_choice {
    struct gpu_half_product shape; /* pointers are there or NULL */
    cublasLtMatmulAlgo_t algorithm;
};
enum { BLAS_CHOICES = 64, BLAS_ALIGNMENT = 16 };
struct gpu_blas {
    struct blas_library calls;
    cublasLtHandle_t handle;
    blas_choice choices[BLAS_CHOICES];
    int n_choices, next;
};

static bool library_open(blas_library *out)
{
#ifdef CUDA_ON_CPU
#define BLAS_FIND(name) out->name = ::name;
    BLAS_CALLS(BLAS_FIND)
    return true;
#else
#define BLAS_TEXT_OF(x) #x
#define BLAS_TEXT(x) BLAS_TEXT_OF(x)
    void *object = dlopen("libcublasLt.so." BLAS_TEXT(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
    bool all = object;
#define BLAS_FIND(name) all = all && (out->name = (decltype(&::name))dlsym(object, #name));
    BLAS_CALLS(BLAS_FIND)
    return all;
#endif
}

struct gpu_blas *gpu_blas_open(void)
{
    gpu_blas *b = (gpu_blas *)calloc(1, sizeof *b);
    if (b && library_open(&b->calls) && b->calls.cublasLtCreate(&b->handle) == 0)
        return b;
    free(b);
    return NULL;
}

void gpu_blas_close(struct gpu_blas *b)
{
    if (b)
        b->calls.cublasLtDestroy(b->handle);
    free(b);
}

/* Descriptions of one product: column by column, as the library counts, so that a matrix whose rows
 * are ours is one whose columns are its. */
struct blas_words {
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t weight, in, addend, out;
};

static void words_free(gpu_blas *b, blas_words *w)
{
    const cublasLtMatrixLayout_t layouts[] = {w->weight, w->in, w->addend, w->out};
    for (cublasLtMatrixLayout_t layout : layouts)
        if (layout)
            b->calls.cublasLtMatrixLayoutDestroy(layout);
    if (w->what)
        b->calls.cublasLtMatmulDescDestroy(w->what);
}

static int words_make(gpu_blas *b, const gpu_half_product *p, blas_words *w)
{
    const blas_library &c = b->calls;
    cudaDataType_t half = p->bf16 ? CUDA_R_16BF : CUDA_R_16F;
    cublasOperation_t turned = CUBLAS_OP_T;
    cublasLtEpilogue_t with_bias = CUBLASLT_EPILOGUE_BIAS;
    int rc = c.cublasLtMatmulDescCreate(&w->what, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    rc = rc ? rc
            : c.cublasLtMatmulDescSetAttribute(w->what, CUBLASLT_MATMUL_DESC_TRANSA, &turned,
                                               sizeof turned);
    if (!rc && p->bias) {
        rc = c.cublasLtMatmulDescSetAttribute(w->what, CUBLASLT_MATMUL_DESC_EPILOGUE, &with_bias,
                                              sizeof with_bias);
        rc = rc ? rc
                : c.cublasLtMatmulDescSetAttribute(w->what, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                   &p->bias, sizeof p->bias);
    }
    rc = rc ? rc : c.cublasLtMatrixLayoutCreate(&w->weight, half, p->inputs, p->outputs, p->inputs);
    rc = rc ? rc : c.cublasLtMatrixLayoutCreate(&w->in, half, p->inputs, p->rows, p->inputs);
    rc = rc ? rc
            : c.cublasLtMatrixLayoutCreate(
                  &w->addend, CUDA_R_32F, p->outputs, p->rows,
                  (int64_t)(p->addend.data ? p->addend.stride : p->out.stride));
    return rc ? rc
              : c.cublasLtMatrixLayoutCreate(&w->out, CUDA_R_32F, p->outputs, p->rows,
                                             (int64_t)p->out.stride);
}

static int way_find(gpu_blas *b, const gpu_half_product *p, const blas_words *w,
                    cublasLtMatmulAlgo_t *out)
{
    const blas_library &c = b->calls;
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found = {};
    uint64_t room = p->work_bytes;
    uint32_t alignment = BLAS_ALIGNMENT;
    int n = 0, rc = c.cublasLtMatmulPreferenceCreate(&wish);
    if (rc)
        return rc;
    rc = c.cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &room, sizeof room);
    for (cublasLtMatmulPreferenceAttributes_t a : alignments)
        rc =
            rc ? rc : c.cublasLtMatmulPreferenceSetAttribute(wish, a, &alignment, sizeof alignment);
    rc = rc ? rc
            : c.cublasLtMatmulAlgoGetHeuristic(b->handle, w->what, w->weight, w->in, w->addend,
                                               w->out, wish, 1, &found, &n);
    c.cublasLtMatmulPreferenceDestroy(wish);
    *out = found.algo;
    return rc ? rc : n > 0 ? 0 : CUBLAS_STATUS_NOT_SUPPORTED;
}

static bool same_shape(const gpu_half_product *a, const gpu_half_product *b)
{
    return a->bf16 == b->bf16 && a->inputs == b->inputs && a->outputs == b->outputs &&
           a->rows == b->rows && !a->bias == !b->bias && !a->addend.data == !b->addend.data &&
           a->addend.stride == b->addend.stride && a->out.stride == b->out.stride &&
           a->work_bytes == b->work_bytes;
}

/* As it was found before, or now. */
static int way_of(gpu_blas *b, const gpu_half_product *p, const blas_words *w,
                  cublasLtMatmulAlgo_t *out)
{
    for (int i = 0; i < b->n_choices; i++)
        if (same_shape(&b->choices[i].shape, p)) {
            *out = b->choices[i].algorithm;
            return 0;
        }
    int rc = way_find(b, p, w, out);
    if (rc)
        return rc;
    b->choices[b->next] = {*p, *out};
    b->n_choices = b->n_choices < BLAS_CHOICES ? b->n_choices + 1 : BLAS_CHOICES;
    b->next = (b->next + 1) % BLAS_CHOICES;
    return 0;
}

bool gpu_blas_fits(const struct gpu_half_product *p)
{
    uintptr_t all = (uintptr_t)p->out.data | (uintptr_t)p->addend.data | (uintptr_t)p->bias |
                    p->out.stride * sizeof(float) | p->addend.stride * sizeof(float);
    return all % BLAS_ALIGNMENT == 0 && p->inputs % 8 == 0;
}

int gpu_blas_run(struct gpu_blas *b, struct CUstream_st *s, const struct gpu_half_product *p)
{
    const float one = 1, keep = p->addend.data ? 1 : 0;
    cublasLtMatmulAlgo_t way;
    blas_words w = {};
    int rc = words_make(b, p, &w);
    rc = rc ? rc : way_of(b, p, &w, &way);
    rc =
        rc ? rc
           : b->calls.cublasLtMatmul(b->handle, w.what, &one, p->weight, w.weight, p->in, w.in,
                                     &keep, p->addend.data ? p->addend.data : p->out.data, w.addend,
                                     p->out.data, w.out, &way, p->work, p->work_bytes, s);
    words_free(b, &w);
    return rc == CUBLAS_STATUS_ALLOC_FAILED ? GPU_NO_MEMORY : rc ? cudaErrorUnknown : 0;
}
#else
struct gpu_blas *gpu_blas_open(void)
{
    return NULL;
}

void gpu_blas_close(struct gpu_blas *) {}

bool gpu_blas_fits(const struct gpu_half_product *)
{
    return false;
}

int gpu_blas_run(struct gpu_blas *, struct CUstream_st *, const struct gpu_half_product *)
{
    return 801; /* cudaErrorNotSupported */
}
#endif
