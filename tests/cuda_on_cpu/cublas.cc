/* cuBLASLt's products by plain loops, run late as all work of a stream. */
#include <cublasLt.h>

#include "cuda_on_cpu_int.h"

using namespace cuda_on_cpu;

struct cublasLtContext {
    int made;
};
struct cublasLtMatmulDescStruct {
    cublasOperation_t turn_a;
    cublasLtEpilogue_t epilogue;
    const float *bias;
};
struct cublasLtMatrixLayoutStruct {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t step;
};
struct cublasLtMatmulPreferenceStruct {
    uint64_t work_bytes;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    int n;
    if (cudaGetDeviceCount(&n))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    *out = new cublasLtContext{1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    delete h;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t,
                                        cudaDataType_t)
{
    *out = new cublasLtMatmulDescStruct{CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    delete d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    void *to = what == CUBLASLT_MATMUL_DESC_TRANSA     ? (void *)&d->turn_a
               : what == CUBLASLT_MATMUL_DESC_EPILOGUE ? (void *)&d->epilogue
                                                       : (void *)&d->bias;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t step)
{
    *out = new cublasLtMatrixLayoutStruct{type, rows, columns, step};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = new cublasLtMatmulPreferenceStruct{0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        memcpy(&p->work_bytes, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* The way says for which shape it is. */
static cublasLtMatmulAlgo_t way_of(cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b)
{
    return {{(uint64_t)a->type, a->rows, a->columns, b->columns}};
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t p, int,
                                              cublasLtMatmulHeuristicResult_t *found, int *n)
{
    *n = 1;
    found->algo = way_of(a, b);
    found->workspaceSize = p->work_bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static float number_at(const void *from, cudaDataType_t type, uint64_t i)
{
    if (type == CUDA_R_32F)
        return ((const float *)from)[i];
    unsigned short bits = ((const unsigned short *)from)[i];
    return type == CUDA_R_16BF ? __uint_as_float((unsigned)bits << 16)
                               : __half2float(__ushort_as_half(bits));
}

/* Column by column: `rows` numbers each. */
static void layout_check(const char *what, const void *at, const cublasLtMatrixLayoutStruct &l,
                         bool writes)
{
    size_t each = l.type == CUDA_R_32F ? 4 : 2;
    for (uint64_t c = 0; c < l.columns; c++)
        memory_check(what, (const uint8_t *)at + c * (uint64_t)l.step * each, l.rows * each,
                     writes);
}

struct blas_product {
    cublasLtMatmulDescStruct d;
    cublasLtMatrixLayoutStruct a, b, c, out;
    const void *from_a, *from_b, *from_c;
    void *to, *work;
    size_t work_bytes;
    float alpha, beta;
};

static void product_run(const blas_product &p)
{
    uintptr_t all = (uintptr_t)p.to | (uintptr_t)p.from_a | (uintptr_t)p.from_b |
                    (uintptr_t)p.from_c | (uint64_t)p.out.step * 4 | (uint64_t)p.a.step * 2;
    if (all % 16 != 0)
        die(nullptr, "cuBLASLt is given matrices that do not lie at multiples of 16 bytes");
    layout_check("cuBLASLt's first matrix", p.from_a, p.a, false);
    layout_check("cuBLASLt's second matrix", p.from_b, p.b, false);
    if (p.beta != 0)
        layout_check("cuBLASLt's addend", p.from_c, p.c, false);
    if (p.d.epilogue == CUBLASLT_EPILOGUE_BIAS)
        memory_check("cuBLASLt's bias", p.d.bias, p.out.rows * 4, false);
    layout_check("cuBLASLt's result", p.to, p.out, true);
    memory_check("cuBLASLt's room", p.work, p.work_bytes, true);
    memset(p.work, 0xff, p.work_bytes < 4096 ? p.work_bytes : 4096);
    for (uint64_t col = 0; col < p.out.columns; col++)
        for (uint64_t row = 0; row < p.out.rows; row++) {
            float sum = 0, *to = (float *)p.to + col * (uint64_t)p.out.step + row;
            for (uint64_t k = 0; k < p.b.rows; k++)
                sum += number_at(p.from_a, p.a.type, row * (uint64_t)p.a.step + k) *
                       number_at(p.from_b, p.b.type, col * (uint64_t)p.b.step + k);
            sum *= p.alpha;
            if (p.beta != 0)
                sum += p.beta * ((const float *)p.from_c)[col * (uint64_t)p.c.step + row];
            *to = p.d.epilogue == CUBLASLT_EPILOGUE_BIAS ? sum + p.d.bias[row] : sum;
        }
    for (uint64_t col = 0; col < p.out.columns; col++)
        memory_written((float *)p.to + col * (uint64_t)p.out.step, p.out.rows * 4);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *out,
                              cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t *way,
                              void *work, size_t work_bytes, cudaStream_t s)
{
    cublasLtMatmulAlgo_t own = way_of(a_layout, b_layout);
    if (memcmp(&own, way, sizeof own) != 0)
        die(nullptr, "cuBLASLt is given a way that was found for another shape");
    if (d->turn_a != CUBLAS_OP_T || a_layout->rows != b_layout->rows ||
        a_layout->columns != out_layout->rows || b_layout->columns != out_layout->columns)
        return CUBLAS_STATUS_INVALID_VALUE;
    blas_product p = {*d,  *a_layout, *b_layout,  *c_layout,
                      *out_layout, a,   b,          c,
                      out, work,      work_bytes, *(const float *)alpha, *(const float *)beta};
    return stream_add(s, [=] { product_run(p); }) ? CUBLAS_STATUS_SUCCESS
                                                  : CUBLAS_STATUS_EXECUTION_FAILED;
}
